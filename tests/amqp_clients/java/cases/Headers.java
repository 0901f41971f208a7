package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.next;
import static cases.Env.session;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionMetaData;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

/** Headers: what the sender sets, what sending sets, and what arrives. */
final class Headers {
    private Headers() {}

    @Case
    static void identifiersAreUnique(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        Set<String> sent = new HashSet<>();
        for (int number = 0; number < 50; number++) {
            Message message = session.createMessage();
            producer.send(message);
            check(message.getJMSMessageID().startsWith("ID:"), message.getJMSMessageID());
            sent.add(message.getJMSMessageID());
        }
        eq(50, sent.size());
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 50; number++) {
            check(sent.remove(consumer.receive(Env.WAIT_MS).getJMSMessageID()), "the id is another one");
        }
    }

    @Case
    static void withoutIdentifierAndTimestamp(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        producer.setDisableMessageID(true);
        producer.setDisableMessageTimestamp(true);
        producer.send(session.createTextMessage("bare"));
        TextMessage found = next(session.createConsumer(queue));
        eq("bare", found.getText());
        eq(null, found.getJMSMessageID());
        eq(0L, found.getJMSTimestamp());
    }

    @Case
    static void timestamp(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        long before = System.currentTimeMillis();
        TextMessage message = session.createTextMessage("t");
        session.createProducer(queue).send(message);
        long after = System.currentTimeMillis();
        long found = next(session.createConsumer(queue)).getJMSTimestamp();
        check(before <= found && found <= after, before + " " + found + " " + after);
        eq(message.getJMSTimestamp(), found);
    }

    @Case
    static void correlationAndType(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        TextMessage message = session.createTextMessage("c");
        message.setJMSCorrelationID("order 4711 – größer");
        message.setJMSType("invoice");
        session.createProducer(queue).send(message);
        TextMessage found = next(session.createConsumer(queue));
        eq("order 4711 – größer", found.getJMSCorrelationID());
        eq("invoice", found.getJMSType());
    }

    @Case
    static void correlationOfAMessageIdAndOfBytes(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        TextMessage first = session.createTextMessage("1");
        producer.send(first);
        TextMessage answer = session.createTextMessage("2");
        answer.setJMSCorrelationID(next(consumer).getJMSMessageID());
        producer.send(answer);
        eq(first.getJMSMessageID(), next(consumer).getJMSCorrelationID());
        TextMessage bytes = session.createTextMessage("3");
        bytes.setJMSCorrelationIDAsBytes(new byte[] {0, 1, -2, 3});
        producer.send(bytes);
        eq(new byte[] {0, 1, -2, 3}, next(consumer).getJMSCorrelationIDAsBytes());
    }

    @Case
    static void destinationAndReplyTo(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        Topic answers = env.topic();
        TextMessage message = session.createTextMessage("q");
        message.setJMSReplyTo(answers);
        session.createProducer(queue).send(message);
        TextMessage found = next(session.createConsumer(queue));
        eq(queue, found.getJMSDestination());
        check(found.getJMSDestination() instanceof Queue, "it is a queue");
        eq(answers, found.getJMSReplyTo());
        check(found.getJMSReplyTo() instanceof Topic, "it is a topic");
        MessageConsumer consumer = session.createConsumer(answers);
        session.createProducer(found.getJMSReplyTo()).send(session.createTextMessage("a"));
        TextMessage answer = next(consumer);
        eq(answers, answer.getJMSDestination());
        eq(null, answer.getJMSReplyTo());
    }

    @Case
    static void deliveryMode(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int mode : new int[] {DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT}) {
            producer.send(session.createTextMessage("m"), mode, 4, 0);
            eq(mode, next(consumer).getJMSDeliveryMode());
        }
    }

    @Case
    static void prioritiesAreKept(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int priority = 0; priority <= 9; priority++) {
            producer.send(session.createTextMessage("p"), DeliveryMode.NON_PERSISTENT, priority, 0);
            eq(priority, next(consumer).getJMSPriority());
        }
    }

    @Case
    static void groupAndUser(Env env) throws Exception {
        Session session = session(env.connect("jms.populateJMSXUserID=true"));
        Queue queue = env.queue();
        TextMessage message = session.createTextMessage("g");
        message.setStringProperty("JMSXGroupID", "red");
        message.setIntProperty("JMSXGroupSeq", 7);
        session.createProducer(queue).send(message);
        TextMessage found = next(session.createConsumer(queue));
        eq("red", found.getStringProperty("JMSXGroupID"));
        eq(7, found.getIntProperty("JMSXGroupSeq"));
        eq("ann", found.getStringProperty("JMSXUserID"));
    }

    @Case
    static void whatConnectionsSayOfThemselves(Env env) throws Exception {
        Connection connection = env.connect();
        ConnectionMetaData found = connection.getMetaData();
        check(found.getJMSMajorVersion() >= 2, "JMS " + found.getJMSVersion());
        check(found.getJMSProviderName() != null, "no provider");
        check(Collections.list(found.getJMSXPropertyNames()).contains("JMSXGroupID"), "no JMSXGroupID");
    }
}
