package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.text;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import jakarta.jms.TransactionRolledBackException;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A connection that breaks, with failover: and without. */
final class Failover {
    private Failover() {}

    private static Connection over(Env env, String options, Proxy... ways) throws JMSException {
        var list = new StringBuilder();
        for (Proxy way : ways) {
            list.append(list.length() == 0 ? "" : ",").append(way.address());
        }
        var factory = new JmsConnectionFactory("ann", "secret", "failover:(" + list
                + ")?failover.reconnectDelay=20&failover.initialReconnectDelay=0&failover.maxReconnectAttempts=200" + options);
        Connection made = env.keep(factory.createConnection());
        made.start();
        return made;
    }

    @Case
    static void consumersGoOn(Env env) throws Exception {
        Queue queue = env.queue();
        Proxy way = env.keep(new Proxy(env.url));
        MessageConsumer consumer = session(over(env, "", way)).createConsumer(queue);
        Session sender = session(env.connect());
        for (int round = 0; round < 3; round++) {
            Env.send(sender, queue, "r" + round);
            // Acknowledgements that were under way when the connection broke may be lost: their messages come again.
            String found = text(consumer);
            for (int again = 0; again < round && !found.equals("r" + round); again++) {
                found = text(consumer);
            }
            eq("r" + round, found);
            way.cut();
        }
    }

    @Case
    static void producersGoOn(Env env) throws Exception {
        Queue queue = env.queue();
        Proxy way = env.keep(new Proxy(env.url));
        Session session = session(over(env, "", way));
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 60; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
            if (number % 15 == 14) {
                way.cut();
            }
        }
        Set<String> found = new HashSet<>();
        MessageConsumer consumer = session(env.connect()).createConsumer(queue);
        while (found.size() < 60) {
            found.add(text(consumer));
        }
    }

    @Case
    static void toTheOtherAddress(Env env) throws Exception {
        Queue queue = env.queue();
        Proxy first = env.keep(new Proxy(env.url));
        Proxy second = env.keep(new Proxy(env.url));
        Connection connection = over(env, "", first, second);
        Session session = session(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        Env.send(session, queue, "by the first");
        texts(consumer, "by the first");
        first.gone();
        Env.send(session, queue, "by the second");
        String found = text(consumer);
        check(found.equals("by the second") || found.equals("by the first"), found);
    }

    @Case
    static void anAddressThatIsDead(Env env) throws Exception {
        Proxy dead = new Proxy(env.url);
        dead.close();
        Proxy alive = env.keep(new Proxy(env.url));
        Queue queue = env.queue();
        Session session = session(over(env, "", dead, alive));
        Env.send(session, queue, "arrived");
        texts(session.createConsumer(queue), "arrived");
    }

    @Case
    static void aTransactionThatWasCutIsRolledBack(Env env) throws Exception {
        Queue queue = env.queue();
        Proxy way = env.keep(new Proxy(env.url));
        Session session = Env.transacted(over(env, "", way));
        Env.send(session, queue, "before");
        session.commit();
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("half"));
        way.cut();
        raises(TransactionRolledBackException.class, () -> {
            Thread.sleep(300);
            producer.send(session.createTextMessage("other half"));
            session.commit();
        });
        // While the client is on its way to the broker, the next transaction may be rolled back as well.
        Env.until("a transaction is committed", () -> {
            try {
                producer.send(session.createTextMessage("after"));
                session.commit();
                return true;
            } catch (TransactionRolledBackException error) {
                return false;
            }
        });
        MessageConsumer consumer = session(env.connect()).createConsumer(queue);
        texts(consumer, "before", "after");
        Env.nothing(consumer);
    }

    @Case
    static void aClientIdIsTakenAlong(Env env) throws Exception {
        Topic topic = env.topic();
        Proxy way = env.keep(new Proxy(env.url));
        Connection connection = over(env, "&jms.clientID=" + env.name(), way);
        Session session = session(connection);
        MessageConsumer consumer = session.createDurableConsumer(topic, "d");
        way.cut();
        Session sender = session(env.connect());
        Env.send(sender, topic, "1");
        texts(consumer, "1");
        consumer.close();
        session.unsubscribe("d");
    }

    @Case
    static void unacknowledgedComesAgain(Env env) throws Exception {
        Queue queue = env.queue();
        Proxy way = env.keep(new Proxy(env.url));
        Session session = over(env, "", way).createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Env.send(session(env.connect()), queue, "1");
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        way.cut();
        TextMessage again = Env.next(consumer);
        eq("1", again.getText());
        check(again.getJMSRedelivered(), "the flag is missing");
        again.acknowledge();
        Env.nothing(consumer);
    }

    @Case
    static void temporaryQueuesComeAgain(Env env) throws Exception {
        Proxy way = env.keep(new Proxy(env.url));
        Session session = session(over(env, "", way));
        var queue = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(queue);
        way.cut();
        Env.send(session, queue, "anew");
        texts(consumer, "anew");
    }

    @Case
    static void withoutItTheListenerIsTold(Env env) throws Exception {
        Proxy way = env.keep(new Proxy(env.url));
        Connection connection = env.keep(new JmsConnectionFactory("ann", "secret", way.address()).createConnection());
        var told = new CountDownLatch(1);
        connection.setExceptionListener(error -> told.countDown());
        connection.start();
        Session session = session(connection);
        way.gone();
        check(told.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "nobody was told");
        raises(JMSException.class, () -> session.createConsumer(session.createQueue(env.name())));
    }
}
