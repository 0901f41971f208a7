package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.session;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;

/** Browsers look and take nothing. */
final class Browsers {
    private Browsers() {}

    private static List<String> seen(QueueBrowser browser) throws Exception {
        List<String> found = new ArrayList<>();
        Enumeration<?> all = browser.getEnumeration();
        while (all.hasMoreElements()) {
            found.add(((TextMessage) all.nextElement()).getText());
        }
        return found;
    }

    @Case
    static void theySeeAllAndTakeNothing(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3");
        QueueBrowser browser = session.createBrowser(queue);
        eq(List.of("1", "2", "3"), seen(browser));
        eq(List.of("1", "2", "3"), seen(browser));
        browser.close();
        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage found = Env.next(consumer);
        eq("1", found.getText());
        eq(1, found.getIntProperty("JMSXDeliveryCount"));
        texts(consumer, "2", "3");
    }

    @Case
    static void anEmptyQueue(Env env) throws Exception {
        Session session = session(env.connect());
        check(!session.createBrowser(env.queue()).getEnumeration().hasMoreElements(), "there is something");
    }

    @Case
    static void withASelector(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        for (int number = 0; number < 10; number++) {
            TextMessage message = session.createTextMessage("n" + number);
            message.setIntProperty("n", number);
            session.createProducer(queue).send(message);
        }
        QueueBrowser browser = session.createBrowser(queue, "n > 7");
        eq("n > 7", browser.getMessageSelector());
        eq(List.of("n8", "n9"), seen(browser));
    }

    @Case
    static void moreThanTheirCredit(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=10");
        Session session = session(connection);
        Queue queue = env.queue();
        String[] all = new String[137];
        for (int number = 0; number < all.length; number++) {
            all[number] = "m" + number;
        }
        Env.send(session, queue, all);
        eq(List.of(all), seen(session.createBrowser(queue)));
    }

    @Case
    static void withoutPrefetch(Env env) throws Exception {
        Session session = session(env.connect("jms.prefetchPolicy.all=0"));
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2");
        eq(List.of("1", "2"), seen(session.createBrowser(queue)));
    }

    @Case
    static void besideAConsumer(Env env) throws Exception {
        Connection connection = env.connect("jms.prefetchPolicy.all=1");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        Env.send(session, queue, "1", "2", "3", "4");
        MessageConsumer consumer = session.createConsumer(queue);
        texts(consumer, "1");
        List<String> found = seen(session(connection).createBrowser(queue));
        check(found.containsAll(List.of("3", "4")), "it sees " + found);
        texts(consumer, "2", "3", "4");
    }
}
