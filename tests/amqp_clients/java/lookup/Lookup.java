package lookup;

import common.Result;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.Destination;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import javax.naming.Context;
import javax.naming.InitialContext;

/**
 * Uses what the file jndi.properties on the class path names. Arguments: user, password, the lookup name of a factory,
 * and those of destinations; prints a line for each of them.
 */
public final class Lookup {
    private static final int WAIT_MS = 15_000;

    private Lookup() {}

    private static void through(Connection connection, Destination destination) throws Exception {
        try (Session session = connection.createSession()) {
            MessageConsumer consumer = session.createConsumer(destination);
            session.createProducer(destination).send(session.createTextMessage("by its lookup name"));
            TextMessage found = (TextMessage) consumer.receive(WAIT_MS);
            if (found == null || !found.getText().equals("by its lookup name")) {
                throw new AssertionError("it has not come back: " + found);
            }
            if (!destination.equals(found.getJMSDestination())) {
                throw new AssertionError("it came by " + found.getJMSDestination());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Context context = new InitialContext();
        var factory = (ConnectionFactory) context.lookup(arguments[2]);
        int status = 0;
        try (Connection connection = factory.createConnection(arguments[0], arguments[1])) {
            connection.start();
            Result.print(arguments[2], null, 0);
            for (int number = 3; number < arguments.length; number++) {
                Throwable failure = null;
                try {
                    through(connection, (Destination) context.lookup(arguments[number]));
                } catch (Throwable error) {
                    failure = error;
                    status = 1;
                }
                Result.print(arguments[number], failure, 0);
            }
        }
        System.exit(status);
    }
}
