package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.session;
import static cases.Env.text;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

/** Prefetch, and waiting that ends: credit and drain of links. */
final class Credit {
    private Credit() {}

    @Case
    static void noWait(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 5; number++) {
            eq(null, consumer.receiveNoWait());
            Env.send(session, queue, "n" + number);
            eq("n" + number, ((TextMessage) consumer.receiveNoWait()).getText());
        }
    }

    @Case
    static void withoutPrefetch(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=0");
        Session session = session(connection);
        Queue queue = env.queue();
        MessageConsumer idle = session.createConsumer(queue);
        MessageConsumer active = session(connection).createConsumer(queue);
        Env.send(session, queue, "1", "2", "3");
        texts(active, "1", "2");
        eq(null, active.receive(1) == null ? null : null);
        eq(null, idle.receiveNoWait());
    }

    @Case
    static void oneInAdvance(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=1");
        Session held = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        MessageConsumer slow = held.createConsumer(queue);
        Session session = session(connection);
        String[] all = new String[30];
        for (int number = 0; number < all.length; number++) {
            all[number] = String.valueOf(number);
        }
        Env.send(session, queue, all);
        text(slow);
        MessageConsumer fast = session.createConsumer(queue);
        int got = 0;
        while (got < 28) {
            text(fast);
            got++;
        }
        check(fast.receive(Env.ABSENT_MS) == null, "more than was free has come");
    }

    /** A short wait often ends just when a message comes: none may be lost, none may be given twice. */
    @Case
    static void drainedUnderLoad(Env env) throws Exception {
        Connection connection = env.connect();
        Queue queue = env.queue();
        int count = 400;
        var failed = new AtomicReference<Throwable>();
        var sender = new Thread(() -> {
            try {
                Session session = session(connection);
                MessageProducer producer = session.createProducer(queue);
                for (int number = 0; number < count; number++) {
                    producer.send(session.createTextMessage(String.valueOf(number)));
                    if (number % 7 == 0) {
                        Thread.sleep(3);
                    }
                }
            } catch (Throwable error) {
                failed.set(error);
            }
        });
        sender.start();
        MessageConsumer consumer = session(env.connect("jms.prefetchPolicy.all=5")).createConsumer(queue);
        List<String> found = new ArrayList<>();
        long end = System.currentTimeMillis() + 2 * Env.WAIT_MS;
        while (found.size() < count && System.currentTimeMillis() < end) {
            Message message = found.size() % 2 == 0 ? consumer.receive(1) : consumer.receiveNoWait();
            if (message != null) {
                found.add(((TextMessage) message).getText());
            }
        }
        sender.join(Env.WAIT_MS);
        check(failed.get() == null, String.valueOf(failed.get()));
        for (int number = 0; number < found.size(); number++) {
            check(found.get(number).equals(String.valueOf(number)), "out of order from " + number + " on: "
                    + found.subList(Math.max(0, number - 5), Math.min(found.size(), number + 20)));
        }
        eq(count, found.size());
    }

    @Case
    static void drainedOnATopicUnderLoad(Env env) throws Exception {
        Connection connection = env.connect();
        Topic topic = env.topic();
        MessageConsumer consumer = session(connection).createConsumer(topic);
        Session session = session(connection);
        MessageProducer producer = session.createProducer(topic);
        for (int number = 0; number < 200; number++) {
            eq(null, number % 20 == 0 ? consumer.receiveNoWait() : null);
            producer.send(session.createTextMessage(String.valueOf(number)));
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void rollbackOfAFullPrefetch(Env env) throws Exception {
        Session session = Env.transacted(env.connect("jms.prefetchPolicy.all=3"));
        Queue queue = env.queue();
        String[] all = new String[50];
        for (int number = 0; number < all.length; number++) {
            all[number] = String.valueOf(number);
        }
        Env.send(session, queue, all);
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int round = 0; round < 6; round++) {
            for (int number = 0; number < 5; number++) {
                texts(consumer, String.valueOf(number));
            }
            session.rollback();
        }
        texts(consumer, all);
        session.commit();
        Env.nothing(consumer);
    }

    @Case
    static void largePrefetch(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=5000");
        Session session = session(connection);
        Queue queue = env.queue();
        MessageProducer producer = session(env.connect("jms.forceAsyncSend=true")).createProducer(queue);
        for (int number = 0; number < 3000; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 3000; number++) {
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void manyConsumersOfASession(Env env) throws Exception {
        Session session = session(env.connect());
        Queue[] queues = new Queue[20];
        MessageConsumer[] consumers = new MessageConsumer[queues.length];
        for (int number = 0; number < queues.length; number++) {
            queues[number] = env.queue();
            consumers[number] = session.createConsumer(queues[number]);
        }
        MessageProducer producer = session.createProducer(null);
        for (int round = 0; round < 10; round++) {
            for (int number = 0; number < queues.length; number++) {
                producer.send(queues[number], session.createTextMessage(round + "." + number));
            }
        }
        for (int round = 0; round < 10; round++) {
            for (int number = 0; number < queues.length; number++) {
                texts(consumers[number], round + "." + number);
            }
        }
    }
}
