package speed;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.Scanner;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * How many persistent messages of 1 KiB a second pass one producer and one consumer. Arguments: the URL, a user,
 * the password and a queue.
 * Each line "WAY COUNT" of the input is one run, answered by a line with its rate: blocking (each send waits for its
 * confirmation), through (so many as WINDOW may wait for theirs), presettled (nothing is confirmed).
 */
public final class Speed {
    private static final int BODY_BYTES = 1024;
    private static final int WINDOW = 500;

    private Speed() {}

    private static void drain(MessageConsumer consumer, int count, AtomicReference<String> failed) {
        try {
            for (int number = 0; number < count; number++) {
                if (consumer.receive(30_000) == null) {
                    failed.set("message " + number + " of " + count + " has not come");
                    return;
                }
            }
        } catch (JMSException error) {
            failed.set(error.toString());
        }
    }

    private static void send(Session session, MessageProducer producer, String way, int count) throws Exception {
        byte[] body = new byte[BODY_BYTES];
        var window = new Semaphore(WINDOW);
        var listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                window.release();
            }

            @Override
            public void onException(Message message, Exception error) {
                throw new IllegalStateException(error);
            }
        };
        for (int number = 0; number < count; number++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body);
            if (way.equals("through")) {
                window.acquire();
                producer.send(message, listener);
            } else {
                producer.send(message);
            }
        }
        if (way.equals("through")) {
            window.acquire(WINDOW);
        }
    }

    private static double run(String[] where, String way, int count) throws Exception {
        String options = way.equals("presettled") ? "?jms.presettlePolicy.presettleAll=true" : "";
        var factory = new JmsConnectionFactory(where[1], where[2], where[0] + options);
        try (Connection sending = factory.createConnection();
                Connection receiving = factory.createConnection()) {
            receiving.start();
            Session session = sending.createSession();
            Session other = receiving.createSession();
            Queue to = session.createQueue(where[3]);
            MessageConsumer consumer = other.createConsumer(to);
            MessageProducer producer = session.createProducer(to);
            var failed = new AtomicReference<String>();
            var taker = new Thread(() -> drain(consumer, count, failed));
            long began = System.nanoTime();
            taker.start();
            send(session, producer, way, count);
            long sent = System.nanoTime();
            taker.join();
            if (failed.get() != null) {
                throw new IllegalStateException(failed.get());
            }
            return count / (((way.equals("blocking") ? sent : System.nanoTime()) - began) / 1e9);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            System.out.println(Math.round(run(arguments, words[0], Integer.parseInt(words[1]))));
            System.out.flush();
        }
        System.exit(0);
    }
}
