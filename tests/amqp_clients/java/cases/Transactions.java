package cases;

import static cases.Env.eq;
import static cases.Env.next;
import static cases.Env.nothing;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.text;
import static cases.Env.texts;
import static cases.Env.transacted;

import jakarta.jms.Connection;
import jakarta.jms.IllegalStateException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;

/** Local transactions. */
final class Transactions {
    private Transactions() {}

    @Case
    static void sendsAreSeenAfterCommit(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        MessageConsumer other = session(connection).createConsumer(queue);
        Env.send(session, queue, "1", "2");
        nothing(other);
        session.commit();
        texts(other, "1", "2");
    }

    @Case
    static void sendsAreGoneAfterRollback(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "1");
        session.rollback();
        Env.send(session, queue, "2");
        session.commit();
        MessageConsumer other = session(connection).createConsumer(queue);
        texts(other, "2");
        nothing(other);
    }

    @Case
    static void receivedAreGoneAfterCommit(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        session.commit();
        session.close();
        MessageConsumer other = session(connection).createConsumer(queue);
        texts(other, "2");
        nothing(other);
    }

    @Case
    static void rollbacksAreCounted(Env env) throws Exception {
        Session session = transacted(env.connect());
        Queue queue = env.queue();
        Env.send(session, queue, "1");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int count = 1; count <= 5; count++) {
            TextMessage found = next(consumer);
            eq(count, found.getIntProperty("JMSXDeliveryCount"));
            eq(count > 1, found.getJMSRedelivered());
            session.rollback();
        }
        texts(consumer, "1");
        session.commit();
        nothing(consumer);
    }

    @Case
    static void rollbackKeepsTheOrder(Env env) throws Exception {
        Session session = transacted(env.connect());
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3", "4");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1", "2", "3");
        session.rollback();
        texts(consumer, "1", "2", "3", "4");
        session.commit();
        nothing(consumer);
    }

    @Case
    static void receiveAndSendAreOne(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue from = env.queue();
        Queue to = env.queue();
        Env.send(session, from, "a", "b");
        session.commit();
        MessageConsumer consumer = session.createConsumer(from);
        Env.send(session, to, text(consumer) + "'");
        session.rollback();
        Env.send(session, to, text(consumer) + "''");
        session.commit();
        MessageConsumer other = session(connection).createConsumer(to);
        texts(other, "a''");
        nothing(other);
        texts(consumer, "b");
        session.commit();
    }

    @Case
    static void severalDestinationsAtOnce(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Topic topic = env.topic();
        Queue queue = env.queue();
        Session others = session(connection);
        MessageConsumer subscriber = others.createConsumer(topic);
        MessageConsumer consumer = others.createConsumer(queue);
        MessageProducer any = session.createProducer(null);
        any.send(topic, session.createTextMessage("t"));
        any.send(queue, session.createTextMessage("q"));
        nothing(subscriber);
        nothing(consumer);
        session.commit();
        texts(subscriber, "t");
        texts(consumer, "q");
    }

    @Case
    static void aSessionThatClosesRollsBack(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "kept");
        session.commit();
        Env.send(session, queue, "lost");
        texts(session.createConsumer(queue), "kept");
        session.close();
        MessageConsumer other = session(connection).createConsumer(queue);
        TextMessage again = next(other);
        eq("kept", again.getText());
        eq(true, again.getJMSRedelivered());
        nothing(other);
    }

    @Case
    static void aConnectionThatClosesRollsBack(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "lost");
        connection.close();
        nothing(session(env.connect()).createConsumer(queue));
    }

    @Case
    static void manyMessages(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 600; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 600; number++) {
            texts(consumer, String.valueOf(number));
        }
        session.rollback();
        texts(consumer, "0");
        session.rollback();
    }

    @Case
    static void receivedInOneAndCommittedWithoutEnd(Env env) throws Exception {
        Session session = transacted(env.connect());
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int round = 0; round < 40; round++) {
            Env.send(session, queue, "r" + round);
            session.commit();
            texts(consumer, "r" + round);
            session.commit();
        }
        nothing(consumer);
    }

    @Case
    static void aConsumerThatClosesStaysInItsTransaction(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = transacted(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        consumer.close();
        session.commit();
        MessageConsumer other = session(connection).createConsumer(queue);
        texts(other, "2");
        nothing(other);
    }

    @Case
    static void transactedOnADurableSubscription(Env env) throws Exception {
        Connection connection = env.client("tx");
        Session session = transacted(connection);
        Topic topic = env.topic();
        MessageConsumer consumer = session.createDurableConsumer(topic, "d");
        Env.send(session, topic, "1", "2");
        session.commit();
        texts(consumer, "1");
        session.rollback();
        texts(consumer, "1", "2");
        session.commit();
        consumer.close();
        session.unsubscribe("d");
    }

    @Case
    static void wordsOfTransactionsNeedOne(Env env) throws Exception {
        Session session = session(env.connect());
        raises(IllegalStateException.class, session::commit);
        raises(IllegalStateException.class, session::rollback);
        Session transacted = transacted(env.connect());
        raises(IllegalStateException.class, transacted::recover);
        transacted.commit();
        transacted.rollback();
    }
}
