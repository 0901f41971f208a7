package cases;

import common.Rest;
import jakarta.jms.Connection;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;

/** What a case is given: connections that are closed after it, destinations of its own, and what it expects. */
final class Env implements AutoCloseable {
    /** What must come may take so long. */
    static final int WAIT_MS = 15_000;
    /** What must not come is waited for so long. */
    static final int ABSENT_MS = 250;
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    /** A broker may have seen other runs. */
    private static final String RUN = Long.toString(System.nanoTime() & 0xffffffffL, 36);

    final String url = System.getProperty("broker.url");
    final Rest rest = new Rest(System.getProperty("broker.admin"));
    private final String prefix;
    private final List<AutoCloseable> opened = new ArrayList<>();

    Env(String prefix) {
        this.prefix = prefix + "_" + RUN;
    }

    interface Step {
        void run() throws Exception;
    }

    JmsConnectionFactory factory(String options) {
        String joined = options.isEmpty() ? url : url + (url.contains("?") ? "&" : "?") + options;
        return new JmsConnectionFactory("ann", "secret", joined);
    }

    /** A started connection; options are those of the client's URL. */
    Connection connect(String options) throws JMSException {
        Connection made = keep(factory(options).createConnection());
        made.start();
        return made;
    }

    Connection connect() throws JMSException {
        return connect("");
    }

    /** A connection with a client id of its own, which the name given ends. */
    Connection client(String id) throws JMSException {
        Connection made = keep(factory("").createConnection());
        made.setClientID(prefix + "-" + id);
        made.start();
        return made;
    }

    JMSContext context(int mode) {
        return keep(factory("").createContext(mode));
    }

    synchronized <T extends AutoCloseable> T keep(T resource) {
        opened.add(resource);
        return resource;
    }

    String name() {
        return prefix + "_" + NUMBERS.incrementAndGet();
    }

    /** A queue of this case's own, which exists. */
    Queue queue() {
        var made = new JmsQueue(name());
        rest.create("queue", made.getAddress());
        return made;
    }

    Topic topic() {
        var made = new JmsTopic(name());
        rest.create("topic", made.getAddress());
        return made;
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    static void send(Session session, jakarta.jms.Destination to, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(to);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    static TextMessage next(MessageConsumer consumer) throws JMSException {
        Message found = consumer.receive(WAIT_MS);
        check(found != null, "no message has come");
        return (TextMessage) found;
    }

    static String text(MessageConsumer consumer) throws JMSException {
        return next(consumer).getText();
    }

    static void texts(MessageConsumer consumer, String... expected) throws JMSException {
        for (String one : expected) {
            eq(one, text(consumer));
        }
    }

    static String text(JMSConsumer consumer) {
        return consumer.receiveBody(String.class, WAIT_MS);
    }

    static void nothing(MessageConsumer consumer) throws JMSException {
        Message found = consumer.receive(ABSENT_MS);
        check(found == null, "a message has come: " + (found instanceof TextMessage ? ((TextMessage) found).getText() : found));
    }

    static void eq(Object expected, Object found) {
        if (!Objects.deepEquals(expected, found)) {
            throw new AssertionError("expected " + shown(expected) + ", found " + shown(found));
        }
    }

    private static String shown(Object value) {
        return value instanceof byte[] ? Arrays.toString((byte[]) value) : String.valueOf(value);
    }

    static void check(boolean condition, String otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }

    /** The step must raise exactly this kind of exception, or a kind of it. */
    static <T extends Throwable> T raises(Class<T> kind, Step step) {
        try {
            step.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("expected " + kind.getSimpleName() + ", it is " + error, error);
        }
        throw new AssertionError("expected " + kind.getSimpleName() + ", nothing was raised");
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + WAIT_MS * 1_000_000L;
        while (!condition.holds()) {
            check(System.nanoTime() < end, "it has not happened: " + what);
            Thread.sleep(10);
        }
    }

    @Override
    public synchronized void close() {
        for (int number = opened.size() - 1; number >= 0; number--) {
            try {
                opened.get(number).close();
            } catch (Exception error) {
                // A case may have closed it, or cut it off.
            }
        }
    }
}
