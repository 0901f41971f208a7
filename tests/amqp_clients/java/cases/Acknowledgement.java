package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.next;
import static cases.Env.nothing;
import static cases.Env.session;
import static cases.Env.text;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Acknowledgement, redelivery, its flag and its count. */
final class Acknowledgement {
    private Acknowledgement() {}

    private static void delivered(TextMessage found, String text, int count) throws Exception {
        eq(text, found.getText());
        eq(count, found.getIntProperty("JMSXDeliveryCount"));
        eq(count > 1, found.getJMSRedelivered());
    }

    @Case
    static void autoAcknowledgedIsGone(Env env) throws Exception {
        Connection first = env.connect();
        Session session = session(first);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1", "2");
        first.close();
        MessageConsumer other = session(env.connect()).createConsumer(queue);
        texts(other, "3");
        nothing(other);
    }

    @Case
    static void whatWasNeverReceivedIsNoRedelivery(Env env) throws Exception {
        Connection first = env.connect();
        Session session = session(first);
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        Env.send(session, queue, "1", "2");
        delivered(next(consumer), "1", 1);
        first.close();
        delivered(next(session(env.connect()).createConsumer(queue)), "2", 1);
    }

    @Case
    static void clientAcknowledgeTakesAllBefore(Env env) throws Exception {
        Connection first = env.connect();
        Session session = first.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3", "4");
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        TextMessage second = next(consumer);
        second.acknowledge();
        texts(consumer, "3");
        first.close();
        MessageConsumer other = session(env.connect()).createConsumer(queue);
        TextMessage third = next(other);
        eq("3", third.getText());
        check(third.getJMSRedelivered(), "3 is redelivered");
        texts(other, "4");
        nothing(other);
    }

    @Case
    static void recoverGivesAgain(Env env) throws Exception {
        Session session = env.connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        MessageConsumer consumer = session.createConsumer(queue);
        delivered(next(consumer), "1", 1);
        delivered(next(consumer), "2", 1);
        session.recover();
        delivered(next(consumer), "1", 2);
        session.recover();
        delivered(next(consumer), "1", 3);
        delivered(next(consumer), "2", 2);
        TextMessage third = next(consumer);
        eq("3", third.getText());
        third.acknowledge();
        nothing(consumer);
    }

    @Case
    static void dupsOkIsGone(Env env) throws Exception {
        Connection first = env.connect();
        Session session = first.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        texts(session.createConsumer(queue), "1", "2", "3");
        first.close();
        nothing(session(env.connect()).createConsumer(queue));
    }

    @Case
    static void individually(Env env) throws Exception {
        Connection first = env.connect();
        Session session = first.createSession(false, 101);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        next(consumer).acknowledge();
        texts(consumer, "3");
        first.close();
        MessageConsumer other = session(env.connect()).createConsumer(queue);
        texts(other, "1", "3");
        nothing(other);
    }

    @Case
    static void aListenerThatFailsIsGivenAgain(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        List<String> seen = new CopyOnWriteArrayList<>();
        var over = new CountDownLatch(3);
        session.createConsumer(queue).setMessageListener(message -> {
            try {
                seen.add(((TextMessage) message).getText());
            } catch (Exception error) {
                seen.add(error.toString());
            }
            over.countDown();
            if (over.getCount() == 2) {
                throw new IllegalStateException("it fails");
            }
        });
        Env.send(session(connection), queue, "a", "b");
        check(over.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "only " + seen);
        // b may be in the buffer of the client already, and then comes between.
        eq(List.of("a", "a", "b"), seen.stream().sorted().toList());
        eq("a", seen.get(0));
    }

    @Case
    static void aSessionThatEndsGivesBack(Env env) throws Exception {
        Connection connection = env.connect();
        Session first = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(first, queue, "1", "2");
        MessageConsumer consumer = first.createConsumer(queue);
        texts(consumer, "1", "2");
        first.close();
        MessageConsumer other = session(connection).createConsumer(queue);
        TextMessage again = next(other);
        eq("1", again.getText());
        check(again.getJMSRedelivered(), "the flag is missing");
        eq("2", text(other));
    }

    @Case
    static void aConsumerThatClosesKeepsWhatIsUnacknowledged(Env env) throws Exception {
        Session session = env.connect().createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2");
        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage first = next(consumer);
        consumer.close();
        first.acknowledge();
        MessageConsumer other = session.createConsumer(queue);
        texts(other, "2");
        nothing(other);
    }

    @Case
    static void acknowledgedFromAnotherConsumerOfTheSession(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue first = env.queue();
        Queue second = env.queue();
        Env.send(session, first, "1");
        Env.send(session, second, "2");
        texts(session.createConsumer(first), "1");
        next(session.createConsumer(second)).acknowledge();
        session.close();
        Session after = session(connection);
        nothing(after.createConsumer(first));
        nothing(after.createConsumer(second));
    }

    @Case
    static void redeliveryKeepsTheOrder(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        String[] all = new String[20];
        for (int number = 0; number < all.length; number++) {
            all[number] = String.valueOf(number);
        }
        Env.send(session, queue, all);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 10; number++) {
            text(consumer);
        }
        session.close();
        texts(session(connection).createConsumer(queue), all);
    }

    @Case
    static void whatPoisonsIsGivenUp(Env env) throws Exception {
        Session session = Env.transacted(env.connect("jms.redeliveryPolicy.maxRedeliveries=2"));
        Queue queue = env.queue();
        Env.send(session, queue, "poison", "good");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int count = 1; count <= 3; count++) {
            delivered(next(consumer), "poison", count);
            session.rollback();
        }
        texts(consumer, "good");
        session.commit();
    }
}
