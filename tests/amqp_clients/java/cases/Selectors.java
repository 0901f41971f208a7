package cases;

import static cases.Env.eq;
import static cases.Env.nothing;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.texts;

import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

/** Selectors on headers and on properties. */
final class Selectors {
    private Selectors() {}

    private interface Change {
        void make(TextMessage message) throws Exception;
    }

    private static void sent(Session session, Queue queue, String text, Change change) throws Exception {
        TextMessage message = session.createTextMessage(text);
        change.make(message);
        session.createProducer(queue).send(message);
    }

    private static void selects(Session session, Queue queue, String selector, String... expected) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue, selector);
        texts(consumer, expected);
        eq(null, consumer.receiveNoWait());
        consumer.close();
    }

    @Case
    static void onMessageId(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        TextMessage wanted = session.createTextMessage("wanted");
        producer.send(session.createTextMessage("other"));
        producer.send(wanted);
        producer.send(session.createTextMessage("another"));
        selects(session, queue, "JMSMessageID = '" + wanted.getJMSMessageID() + "'", "wanted");
        selects(session, queue, null, "other", "another");
    }

    @Case
    static void onCorrelationAndType(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        sent(session, queue, "a", m -> m.setJMSCorrelationID("c1"));
        sent(session, queue, "b", m -> m.setJMSCorrelationID("c2"));
        sent(session, queue, "c", m -> m.setJMSType("t"));
        selects(session, queue, "JMSCorrelationID = 'c2'", "b");
        selects(session, queue, "JMSType = 't'", "c");
        selects(session, queue, "JMSCorrelationID IS NOT NULL", "a");
    }

    @Case
    static void onPriorityModeAndTime(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("low"), DeliveryMode.NON_PERSISTENT, 1, 0);
        producer.send(session.createTextMessage("high"), DeliveryMode.PERSISTENT, 8, 0);
        selects(session, queue, "JMSPriority >= 7", "high");
        selects(session, queue, "JMSDeliveryMode = 'NON_PERSISTENT' AND JMSTimestamp > 1000", "low");
    }

    @Case
    static void onNumbers(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        for (int number = 1; number <= 6; number++) {
            int value = number;
            sent(session, queue, "n" + number, m -> {
                m.setIntProperty("i", value);
                m.setDoubleProperty("d", value / 2.0);
                m.setLongProperty("l", 10_000_000_000L * value);
            });
        }
        selects(session, queue, "i BETWEEN 2 AND 3", "n2", "n3");
        selects(session, queue, "d = 0.5", "n1");
        selects(session, queue, "l > 5 * 10000000000", "n6");
        selects(session, queue, "i + 1 = 5 OR -i = -5", "n4", "n5");
    }

    @Case
    static void onTexts(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        for (String color : new String[] {"red", "dark red", "blue", "it's_green"}) {
            sent(session, queue, color, m -> m.setStringProperty("color", color));
        }
        sent(session, queue, "none", m -> m.setBooleanProperty("plain", true));
        selects(session, queue, "color IN ('red', 'yellow')", "red");
        selects(session, queue, "color LIKE '%red'", "dark red");
        selects(session, queue, "color LIKE 'it''s!_%' ESCAPE '!'", "it's_green");
        selects(session, queue, "color IS NULL AND plain = TRUE", "none");
        selects(session, queue, "NOT (color = 'red')", "blue");
    }

    @Case
    static void textsAndNumbersAreNotEqual(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        sent(session, queue, "text", m -> m.setStringProperty("n", "1"));
        sent(session, queue, "number", m -> m.setIntProperty("n", 1));
        selects(session, queue, "n = 1", "number");
        selects(session, queue, "n = '1'", "text");
    }

    @Case
    static void onDeliveryCountAndGroup(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        sent(session, queue, "g", m -> m.setStringProperty("JMSXGroupID", "blue"));
        sent(session, queue, "h", m -> m.setStringProperty("JMSXGroupID", "red"));
        selects(session, queue, "JMSXGroupID = 'red'", "h");
        selects(session, queue, "JMSXGroupID = 'blue'", "g");
    }

    @Case
    static void twoConsumersWithTheirSelectors(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageConsumer even = session.createConsumer(queue, "even = TRUE");
        MessageConsumer odd = session.createConsumer(queue, "even = FALSE");
        for (int number = 0; number < 20; number++) {
            boolean value = number % 2 == 0;
            sent(session, queue, String.valueOf(number), m -> m.setBooleanProperty("even", value));
        }
        for (int number = 0; number < 20; number += 2) {
            texts(even, String.valueOf(number));
            texts(odd, String.valueOf(number + 1));
        }
        nothing(even);
        nothing(odd);
    }

    @Case
    static void invalidOnesAreRefused(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        raises(InvalidSelectorException.class, () -> session.createConsumer(queue, "a = = 1"));
        raises(InvalidSelectorException.class, () -> session.createConsumer(env.topic(), "LIKE 'x'"));
        Env.send(session, queue, "still");
        texts(session.createConsumer(queue, " "), "still");
    }
}
