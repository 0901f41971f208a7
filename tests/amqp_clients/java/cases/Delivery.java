package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.next;
import static cases.Env.nothing;
import static cases.Env.session;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
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

/** Order, priority, expiry, delay, and listeners. */
final class Delivery {
    private static final int DELAY_MS = 700;

    private Delivery() {}

    @Case
    static void higherPrioritiesComeFirst(Env env) throws Exception {
        Session session = session(env.connect("jms.prefetchPolicy.all=0"));
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        for (int priority : new int[] {4, 0, 9, 5}) {
            producer.setPriority(priority);
            producer.send(session.createTextMessage("p" + priority));
        }
        texts(session.createConsumer(queue), "p9", "p5", "p4", "p0");
    }

    @Case
    static void orderIsKept(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session(connection).createProducer(queue);
        for (int number = 0; number < 300; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        for (int number = 0; number < 300; number++) {
            texts(consumer, String.valueOf(number));
        }
    }

    @Case
    static void expiredMessagesDoNotCome(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 4, 200);
        producer.send(session.createTextMessage("long"), DeliveryMode.PERSISTENT, 4, 60_000);
        Thread.sleep(500);
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "long");
        nothing(consumer);
    }

    @Case
    static void whatIsPrefetchedExpiresToo(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 4, 150);
        Thread.sleep(400);
        nothing(consumer);
        producer.send(session.createTextMessage("next"));
        texts(consumer, "next");
    }

    @Case
    static void expirationIsTold(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        TextMessage message = session.createTextMessage("e");
        producer.send(message, DeliveryMode.PERSISTENT, 4, 60_000);
        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage found = next(consumer);
        eq(message.getJMSExpiration(), found.getJMSExpiration());
        check(found.getJMSExpiration() > System.currentTimeMillis(), "it is in the future");
        producer.send(session.createTextMessage("never"));
        eq(0L, next(consumer).getJMSExpiration());
    }

    @Case
    static void delayedMessagesComeLater(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(DELAY_MS);
        long began = System.currentTimeMillis();
        TextMessage message = session.createTextMessage("late");
        producer.send(message);
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("at once"));
        texts(consumer, "at once");
        TextMessage found = next(consumer);
        eq("late", found.getText());
        check(System.currentTimeMillis() - began >= DELAY_MS, "too early");
        check(found.getJMSDeliveryTime() >= began + DELAY_MS, "JMSDeliveryTime " + (found.getJMSDeliveryTime() - began));
        eq(message.getJMSDeliveryTime(), found.getJMSDeliveryTime());
    }

    @Case
    static void delayedOnATopic(Env env) throws Exception {
        Session session = session(env.connect());
        Topic topic = env.topic();
        MessageConsumer consumer = session.createConsumer(topic);
        MessageProducer producer = session.createProducer(topic);
        producer.setDeliveryDelay(DELAY_MS);
        producer.send(session.createTextMessage("late"));
        eq(null, consumer.receive(DELAY_MS / 3));
        texts(consumer, "late");
    }

    @Case
    static void delayedInATransaction(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = Env.transacted(connection);
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(DELAY_MS);
        producer.send(session.createTextMessage("late"));
        long sent = System.currentTimeMillis();
        session.commit();
        MessageConsumer consumer = session(connection).createConsumer(queue);
        texts(consumer, "late");
        check(System.currentTimeMillis() >= sent + DELAY_MS - 50, "too early");
    }

    @Case
    static void aBrowserDoesNotSeeWhatIsDelayed(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(60_000);
        producer.send(session.createTextMessage("much later"));
        check(!session.createBrowser(queue).getEnumeration().hasMoreElements(), "it is seen");
        nothing(session.createConsumer(queue));
    }

    @Case
    static void consumersShareAQueue(Env env) throws Exception {
        Connection connection = env.connect();
        Queue queue = env.queue();
        List<String> found = new CopyOnWriteArrayList<>();
        var all = new CountDownLatch(100);
        for (int number = 0; number < 4; number++) {
            session(connection).createConsumer(queue).setMessageListener(message -> {
                try {
                    found.add(((TextMessage) message).getText());
                } catch (Exception error) {
                    found.add(error.toString());
                }
                all.countDown();
            });
        }
        Session session = session(connection);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 100; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        check(all.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "some are missing: " + found.size());
        eq(100L, found.stream().distinct().count());
    }

    @Case
    static void aStoppedConnectionDeliversNothing(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        connection.stop();
        Env.send(session, queue, "held");
        nothing(consumer);
        connection.start();
        texts(consumer, "held");
    }

    @Case
    static void groupsKeepTheirConsumer(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=1");
        Queue queue = env.queue();
        var seen = new CopyOnWriteArrayList<String>();
        var all = new CountDownLatch(30);
        for (String who : new String[] {"a", "b"}) {
            session(connection).createConsumer(queue).setMessageListener(message -> {
                try {
                    seen.add(message.getStringProperty("JMSXGroupID") + ":" + message.getIntProperty("n") + ":" + who);
                } catch (Exception error) {
                    seen.add(error.toString());
                }
                all.countDown();
            });
        }
        Session session = session(connection);
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 30; number++) {
            Message message = session.createMessage();
            message.setStringProperty("JMSXGroupID", number % 2 == 0 ? "even" : "odd");
            message.setIntProperty("n", number);
            producer.send(message);
        }
        check(all.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "some are missing: " + seen.size());
        for (String group : new String[] {"even", "odd"}) {
            int last = -1;
            for (String line : seen) {
                if (line.startsWith(group)) {
                    int number = Integer.parseInt(line.split(":")[1]);
                    check(number > last, "a group is out of order: " + seen);
                    last = number;
                }
            }
        }
    }

    @Case
    static void aClosedConsumerEndsItsWait(Env env) throws Exception {
        Session session = session(env.connect());
        MessageConsumer consumer = session.createConsumer(env.queue());
        var ended = new CountDownLatch(1);
        new Thread(() -> {
            try {
                if (consumer.receive() == null) {
                    ended.countDown();
                }
            } catch (Exception error) {
                ended.countDown();
            }
        }).start();
        Thread.sleep(200);
        consumer.close();
        check(ended.await(Env.WAIT_MS, TimeUnit.MILLISECONDS), "receive waits on");
    }
}
