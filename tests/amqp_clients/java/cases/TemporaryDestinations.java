package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.next;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;

/** Temporary queues and topics, and answers by them. */
final class TemporaryDestinations {
    private TemporaryDestinations() {}

    @Case
    static void requestAndReply(Env env) throws Exception {
        Queue requests = env.queue();
        Session server = session(env.connect());
        MessageProducer answers = server.createProducer(null);
        server.createConsumer(requests).setMessageListener(message -> {
            try {
                TextMessage answer = server.createTextMessage(((TextMessage) message).getText() + "!");
                answer.setJMSCorrelationID(message.getJMSMessageID());
                answers.send(message.getJMSReplyTo(), answer);
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
        Session client = session(env.connect());
        TemporaryQueue replies = client.createTemporaryQueue();
        MessageConsumer consumer = client.createConsumer(replies);
        MessageProducer producer = client.createProducer(requests);
        for (int number = 0; number < 20; number++) {
            TextMessage request = client.createTextMessage("r" + number);
            request.setJMSReplyTo(replies);
            producer.send(request);
            TextMessage answer = next(consumer);
            eq("r" + number + "!", answer.getText());
            eq(request.getJMSMessageID(), answer.getJMSCorrelationID());
            check(answer.getJMSDestination() instanceof TemporaryQueue, "it came by a temporary queue");
        }
    }

    @Case
    static void replyToATemporaryTopic(Env env) throws Exception {
        Queue requests = env.queue();
        Session client = session(env.connect());
        TemporaryTopic replies = client.createTemporaryTopic();
        MessageConsumer one = client.createConsumer(replies);
        MessageConsumer two = client.createConsumer(replies);
        TextMessage request = client.createTextMessage("q");
        request.setJMSReplyTo(replies);
        client.createProducer(requests).send(request);
        Session server = session(env.connect());
        Destination to = next(server.createConsumer(requests)).getJMSReplyTo();
        check(to instanceof TemporaryTopic, "it is " + to);
        Env.send(server, to, "a");
        texts(one, "a");
        texts(two, "a");
    }

    @Case
    static void theirNamesAreUnique(Env env) throws Exception {
        Session session = session(env.connect());
        TemporaryQueue one = session.createTemporaryQueue();
        TemporaryQueue two = session.createTemporaryQueue();
        check(!one.getQueueName().equals(two.getQueueName()), one.getQueueName());
        Env.send(session, one, "1");
        Env.send(session, two, "2");
        texts(session.createConsumer(two), "2");
        texts(session.createConsumer(one), "1");
    }

    @Case
    static void ofAnotherConnection(Env env) throws Exception {
        TemporaryQueue queue = session(env.connect()).createTemporaryQueue();
        Session other = session(env.connect());
        raises(JMSException.class, () -> other.createConsumer(queue));
    }

    @Case
    static void deletedOnlyWithoutConsumers(Env env) throws Exception {
        Session session = session(env.connect());
        TemporaryQueue queue = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(queue);
        raises(JMSException.class, queue::delete);
        consumer.close();
        queue.delete();
        raises(JMSException.class, () -> session.createConsumer(queue));
    }

    @Case
    static void goneWithTheConnection(Env env) throws Exception {
        Connection connection = env.connect();
        TemporaryQueue queue = session(connection).createTemporaryQueue();
        Session other = session(env.connect());
        MessageProducer producer = other.createProducer(queue);
        producer.send(other.createTextMessage("there"));
        connection.close();
        Env.until("sending to it fails", () -> {
            try {
                producer.send(other.createTextMessage("gone"));
                return false;
            } catch (JMSException error) {
                return true;
            }
        });
    }

    @Case
    static void itOutlivesItsSession(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        TemporaryQueue queue = session.createTemporaryQueue();
        session.close();
        Session other = session(connection);
        Env.send(other, queue, "still");
        texts(other.createConsumer(queue), "still");
    }
}
