package elsewhere;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Connects to one broker, and prints its port. After a line of the input it sends a message and receives it, wherever it
 * is connected by then, and prints the port of that broker and the message.
 */
public final class Elsewhere {
    private static final int WAIT_MS = 20_000;

    private Elsewhere() {}

    private static int port(Connection connection) {
        return ((JmsConnection) connection).getConnectedURI().getPort();
    }

    /** Arguments: URL, user, password, queue. */
    public static void main(String[] given) throws Exception {
        Connection connection = new JmsConnectionFactory(given[1], given[2], given[0]).createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(given[3]);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        producer.send(session.createTextMessage("before"));
        consumer.receive(WAIT_MS);
        System.out.println(port(connection));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        producer.send(session.createTextMessage("after"));
        Message found = consumer.receive(WAIT_MS);
        System.out.println(port(connection) + " " + (found == null ? "nothing" : ((TextMessage) found).getText()));
        connection.close();
    }
}
