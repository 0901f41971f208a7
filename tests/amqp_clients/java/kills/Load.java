package kills;

import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicLong;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Load on one queue while its broker is killed and comes again, over connections with failover. Arguments: the URL and
 * the queue. Producers end when a line comes, consumers when nothing more has come for a while; then one line of JSON
 * has what was tried, what was confirmed, what has come, and what went wrong.
 */
public final class Load {
    private static final int IN_TRANSACTION = 5;
    private static final int PAUSE_MS = 2;
    private static final int IDLE_MS = 4_000;
    private static final int JOIN_MS = 90_000;

    private final JmsConnectionFactory factory;
    private final String queue;
    private final ConcurrentLinkedQueue<String> tried = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> confirmed = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> received = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> doubtful = new ConcurrentLinkedQueue<>();
    private final List<String> faults = new CopyOnWriteArrayList<>();
    private final AtomicLong lastSeen = new AtomicLong(System.currentTimeMillis());
    private volatile boolean sending = true;
    private volatile boolean receiving = true;

    private Load(String url, String queue) {
        factory = new JmsConnectionFactory("ann", "secret", url);
        this.queue = queue;
    }

    private interface Body {
        void run(Session session, Queue queue) throws Exception;
    }

    private Thread start(String name, boolean transacted, int mode, Body body) {
        var thread = new Thread(() -> {
            try (Connection connection = factory.createConnection()) {
                connection.start();
                Session session = transacted
                        ? connection.createSession(true, Session.SESSION_TRANSACTED)
                        : connection.createSession(false, mode);
                body.run(session, session.createQueue(queue));
            } catch (Exception error) {
                faults.add(name + ": " + error);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void produce(String name, Session session, Queue to) throws Exception {
        MessageProducer producer = session.createProducer(to);
        for (int number = 0; sending; number++) {
            String id = name + ":" + number;
            tried.add(id);
            try {
                producer.send(session.createTextMessage(id));
                confirmed.add(id);
            } catch (JMSException error) {
                // Whether it has arrived is not known: it may come, and need not.
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private void produceInTransactions(String name, Session session, Queue to) throws Exception {
        MessageProducer producer = session.createProducer(to);
        for (int number = 0; sending; number += IN_TRANSACTION) {
            List<String> ids = new ArrayList<>();
            for (int one = number; one < number + IN_TRANSACTION; one++) {
                ids.add(name + ":" + one);
            }
            tried.addAll(ids);
            try {
                for (String id : ids) {
                    producer.send(session.createTextMessage(id));
                }
                session.commit();
                confirmed.addAll(ids);
            } catch (JMSException error) {
                rollback(session);
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private void consume(Session session, Queue from, boolean transacted) throws Exception {
        MessageConsumer consumer = session.createConsumer(from);
        List<String> taken = new ArrayList<>();
        Message last = null;
        while (receiving) {
            Message message = consumer.receive(100);
            if (message != null) {
                lastSeen.set(System.currentTimeMillis());
                taken.add(((TextMessage) message).getText() + (message.getJMSRedelivered() ? "!" : ""));
                last = message;
            }
            if (taken.isEmpty() || (message != null && taken.size() < IN_TRANSACTION)) {
                continue;
            }
            try {
                if (transacted) {
                    session.commit();
                } else {
                    last.acknowledge();
                }
            } catch (JMSException error) {
                if (transacted) {
                    // What it has taken comes again, and counts then, unless the commit was carried out all the same.
                    doubtful.addAll(taken);
                    taken.clear();
                    rollback(session);
                }
            }
            received.addAll(taken);
            taken.clear();
        }
    }

    private static void rollback(Session session) {
        try {
            session.rollback();
        } catch (JMSException error) {
            // The next transaction will say so too.
        }
    }

    private static String json(Iterable<String> texts) {
        var made = new StringBuilder("[");
        for (String text : texts) {
            made.append(made.length() == 1 ? "" : ", ").append('"')
                    .append(text.replace('\\', '/').replace('"', '\'').replace('\n', ' ')).append('"');
        }
        return made.append("]").toString();
    }

    private void run() throws InterruptedException {
        List<Thread> producers = List.of(
                start("a", false, Session.AUTO_ACKNOWLEDGE, (session, to) -> produce("a", session, to)),
                start("b", false, Session.AUTO_ACKNOWLEDGE, (session, to) -> produce("b", session, to)),
                start("t", true, 0, (session, to) -> produceInTransactions("t", session, to)));
        List<Thread> consumers = List.of(
                start("c", false, Session.CLIENT_ACKNOWLEDGE, (session, from) -> consume(session, from, false)),
                start("d", true, 0, (session, from) -> consume(session, from, true)));
        System.out.println("running");
        System.out.flush();
        new Scanner(System.in).nextLine();
        sending = false;
        long end = System.currentTimeMillis() + JOIN_MS;
        for (Thread thread : producers) {
            thread.join(Math.max(1, end - System.currentTimeMillis()));
            if (thread.isAlive()) {
                faults.add("producer " + thread.getName() + " hangs");
            }
        }
        lastSeen.set(System.currentTimeMillis());
        while (System.currentTimeMillis() - lastSeen.get() < IDLE_MS && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        receiving = false;
        for (Thread thread : consumers) {
            thread.join(Math.max(1, end - System.currentTimeMillis()));
            if (thread.isAlive()) {
                faults.add("consumer " + thread.getName() + " hangs");
            }
        }
        System.out.println("{\"tried\": " + json(tried) + ", \"confirmed\": " + json(confirmed)
                + ", \"received\": " + json(received) + ", \"doubtful\": " + json(doubtful) + ", \"faults\": " + json(faults) + "}");
        System.out.flush();
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        new Load(arguments[0], arguments[1]).run();
    }
}
