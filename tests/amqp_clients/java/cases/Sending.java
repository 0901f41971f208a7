package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.texts;

import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Sending: asynchronous, without waiting, to any destination. */
final class Sending {
    private Sending() {}

    private static final class Noted implements CompletionListener {
        private final List<String> done = new CopyOnWriteArrayList<>();
        private final List<Exception> failed = new CopyOnWriteArrayList<>();
        private final CountDownLatch left;

        Noted(int count) {
            left = new CountDownLatch(count);
        }

        @Override
        public void onCompletion(Message message) {
            try {
                done.add(((TextMessage) message).getText());
            } catch (JMSException error) {
                failed.add(error);
            }
            left.countDown();
        }

        @Override
        public void onException(Message message, Exception error) {
            failed.add(error);
            left.countDown();
        }

        void await() throws InterruptedException {
            check(left.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "missing: " + left.getCount());
        }
    }

    @Case
    static void completionsComeInOrder(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        var noted = new Noted(200);
        for (int number = 0; number < 200; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)), noted);
        }
        noted.await();
        eq(List.of(), noted.failed);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 200; number++) {
            eq(String.valueOf(number), noted.done.get(number));
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void closingWaitsForCompletions(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        MessageProducer producer = session.createProducer(env.queue());
        var noted = new Noted(100);
        for (int number = 0; number < 100; number++) {
            producer.send(session.createTextMessage("c"), DeliveryMode.PERSISTENT, 4, 0, noted);
        }
        session.close();
        eq(0L, noted.left.getCount());
        eq(List.of(), noted.failed);
    }

    @Case
    static void completionOfAContext(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = env.queue();
        var noted = new Noted(3);
        context.createProducer().setAsync(noted).send(queue, "1").send(queue, "2").send(queue, "3");
        noted.await();
        eq(List.of("1", "2", "3"), List.copyOf(noted.done));
    }

    @Case
    static void completionsInATransaction(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = Env.transacted(connection);
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        var noted = new Noted(10);
        for (int number = 0; number < 10; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)), noted);
        }
        session.commit();
        noted.await();
        eq(10, noted.done.size());
        MessageConsumer consumer = session(connection).createConsumer(queue);
        for (int number = 0; number < 10; number++) {
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void failedCompletionIsTold(Env env) throws Exception {
        Proxy way = env.keep(new Proxy(env.url));
        Queue queue = env.queue();
        Connection connection = env.keep(
                new org.apache.qpid.jms.JmsConnectionFactory("ann", "secret", way.address()).createConnection());
        connection.start();
        Session session = session(connection);
        MessageProducer producer = session.createProducer(queue);
        var noted = new Noted(2000);
        int sent = 0;
        try {
            for (; sent < 2000; sent++) {
                if (sent == 1000) {
                    way.gone();
                }
                producer.send(session.createTextMessage(String.valueOf(sent)), noted);
            }
        } catch (JMSException error) {
            // The producer has learnt that its connection is gone.
        }
        int told = sent;
        Env.until("each send is told", () -> noted.done.size() + noted.failed.size() >= told);
        check(!noted.failed.isEmpty(), "none has failed");
        Session other = session(env.connect());
        MessageConsumer consumer = other.createConsumer(queue);
        for (int number = 0; number < noted.done.size(); number++) {
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void anonymousProducers(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        Topic topic = env.topic();
        MessageConsumer subscriber = session.createConsumer(topic);
        MessageProducer producer = session.createProducer(null);
        producer.send(queue, session.createTextMessage("q"));
        producer.send(topic, session.createTextMessage("t"));
        var temporary = session.createTemporaryQueue();
        producer.send(temporary, session.createTextMessage("tq"));
        texts(session.createConsumer(queue), "q");
        texts(subscriber, "t");
        texts(session.createConsumer(temporary), "tq");
        raises(UnsupportedOperationException.class, () -> producer.send(session.createTextMessage("where?")));
        MessageProducer fixed = session.createProducer(queue);
        raises(UnsupportedOperationException.class, () -> fixed.send(topic, session.createTextMessage("no")));
    }

    @Case
    static void presettled(Env env) throws Exception {
        Connection connection = env.connect("jms.presettlePolicy.presettleProducers=true");
        Session session = session(connection);
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 500; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 500; number++) {
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void presettledConsumers(Env env) throws Exception {
        Connection connection = env.connect("jms.presettlePolicy.presettleConsumers=true");
        Session session = session(connection);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        texts(session.createConsumer(queue), "1", "2", "3");
        connection.close();
        Env.nothing(session(env.connect()).createConsumer(queue));
    }

    @Case
    static void defaultsOfAProducer(Env env) throws Exception {
        Session session = session(env.connect());
        MessageProducer producer = session.createProducer(env.queue());
        eq(DeliveryMode.PERSISTENT, producer.getDeliveryMode());
        eq(4, producer.getPriority());
        eq(0L, producer.getTimeToLive());
        eq(0L, producer.getDeliveryDelay());
        raises(JMSException.class, () -> producer.setPriority(10));
        raises(JMSException.class, () -> producer.setDeliveryMode(5));
    }

    @Case
    static void manyThreads(Env env) throws Exception {
        Queue queue = env.queue();
        Connection connection = env.connect();
        var failed = new CopyOnWriteArrayList<Throwable>();
        Thread[] threads = new Thread[4];
        for (int number = 0; number < threads.length; number++) {
            int who = number;
            threads[number] = new Thread(() -> {
                try {
                    Session session = session(connection);
                    MessageProducer producer = session.createProducer(queue);
                    for (int count = 0; count < 50; count++) {
                        TextMessage message = session.createTextMessage(who + ":" + count);
                        message.setIntProperty("who", who);
                        producer.send(message);
                    }
                } catch (Throwable error) {
                    failed.add(error);
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        eq(List.of(), failed);
        int[] last = {-1, -1, -1, -1};
        MessageConsumer consumer = session(connection).createConsumer(queue);
        for (int number = 0; number < 200; number++) {
            TextMessage message = Env.next(consumer);
            int who = message.getIntProperty("who");
            eq(who + ":" + ++last[who], message.getText());
        }
    }
}
