package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.nothing;
import static cases.Env.raises;
import static cases.Env.session;
import static cases.Env.text;
import static cases.Env.texts;

import jakarta.jms.Connection;
import jakarta.jms.IllegalStateException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.HashSet;
import java.util.Set;

/** Subscriptions: of one consumer or shared, that last or do not, of a client or global. */
final class Subscriptions {
    private Subscriptions() {}

    /** All that the consumers get, and that each has got some. */
    private static Set<String> shared(int count, MessageConsumer... consumers) throws Exception {
        Set<String> found = new HashSet<>();
        int[] each = new int[consumers.length];
        long end = System.currentTimeMillis() + Env.WAIT_MS;
        while (found.size() < count && System.currentTimeMillis() < end) {
            for (int number = 0; number < consumers.length; number++) {
                Message message = consumers[number].receive(50);
                if (message != null) {
                    check(found.add(((TextMessage) message).getText()), "it came twice");
                    each[number]++;
                }
            }
        }
        eq(count, found.size());
        for (MessageConsumer consumer : consumers) {
            nothing(consumer);
        }
        for (int got : each) {
            check(got > 0, "a consumer has got nothing");
        }
        return found;
    }

    private static void publish(Session session, Topic topic, int count) throws Exception {
        String[] all = new String[count];
        for (int number = 0; number < count; number++) {
            all[number] = String.valueOf(number);
        }
        Env.send(session, topic, all);
    }

    @Case
    static void eachSubscriberGetsAll(Env env) throws Exception {
        Session session = session(env.connect());
        Topic topic = env.topic();
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer two = session(env.connect()).createConsumer(topic);
        Env.send(session, topic, "1", "2");
        texts(one, "1", "2");
        texts(two, "1", "2");
        MessageConsumer late = session.createConsumer(topic);
        nothing(late);
    }

    @Case
    static void durableOnesKeepMessages(Env env) throws Exception {
        Topic topic = env.topic();
        Connection connection = env.client("d");
        session(connection).createDurableConsumer(topic, "news");
        connection.close();
        Env.send(session(env.connect()), topic, "1", "2");
        Connection again = env.client("d");
        Session session = session(again);
        MessageConsumer consumer = session.createDurableConsumer(topic, "news");
        texts(consumer, "1");
        consumer.close();
        consumer = session.createDurableConsumer(topic, "news");
        texts(consumer, "2");
        consumer.close();
        session.unsubscribe("news");
    }

    @Case
    static void durableSubscriberOfOldNames(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("old"));
        var subscriber = session.createDurableSubscriber(topic, "sub", "n > 1", false);
        for (int number = 1; number <= 3; number++) {
            TextMessage message = session.createTextMessage("n" + number);
            message.setIntProperty("n", number);
            session.createProducer(topic).send(message);
        }
        texts(subscriber, "n2", "n3");
        eq(topic, subscriber.getTopic());
        eq("n > 1", subscriber.getMessageSelector());
        subscriber.close();
        session.unsubscribe("sub");
    }

    @Case
    static void unsubscribeRules(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("u"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "s");
        raises(JMSException.class, () -> session.unsubscribe("s"));
        Env.send(session, topic, "kept");
        texts(consumer, "kept");
        consumer.close();
        Env.send(session, topic, "gone");
        session.unsubscribe("s");
        raises(InvalidDestinationException.class, () -> session.unsubscribe("s"));
        raises(InvalidDestinationException.class, () -> session.unsubscribe("never"));
        MessageConsumer anew = session.createDurableConsumer(topic, "s");
        nothing(anew);
        anew.close();
        session.unsubscribe("s");
    }

    @Case
    static void anotherSelectorIsAnotherSubscription(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("c"));
        session.createDurableConsumer(topic, "s", "JMSType = 'a'", false).close();
        TextMessage message = session.createTextMessage("old");
        message.setJMSType("a");
        session.createProducer(topic).send(message);
        MessageConsumer changed = session.createDurableConsumer(topic, "s", "JMSType = 'b'", false);
        nothing(changed);
        message = session.createTextMessage("new");
        message.setJMSType("b");
        session.createProducer(topic).send(message);
        texts(changed, "new");
        changed.close();
        session.unsubscribe("s");
    }

    @Case
    static void anotherTopicIsAnotherSubscription(Env env) throws Exception {
        Topic first = env.topic();
        Topic second = env.topic();
        Session session = session(env.client("t"));
        session.createDurableConsumer(first, "s").close();
        Env.send(session, first, "old");
        MessageConsumer changed = session.createDurableConsumer(second, "s");
        Env.send(session, second, "new");
        Env.send(session, first, "unheard");
        texts(changed, "new");
        nothing(changed);
        changed.close();
        session.unsubscribe("s");
    }

    @Case
    static void anUnsharedOneHasOneConsumer(Env env) throws Exception {
        Topic topic = env.topic();
        Connection connection = env.client("one");
        Session session = session(connection);
        MessageConsumer consumer = session.createDurableConsumer(topic, "s");
        raises(JMSException.class, () -> session(connection).createDurableConsumer(topic, "s"));
        Env.send(session, topic, "on");
        texts(consumer, "on");
        consumer.close();
        session.unsubscribe("s");
    }

    @Case
    static void sameNameOfTwoClients(Env env) throws Exception {
        Topic topic = env.topic();
        Session one = session(env.client("1"));
        Session two = session(env.client("2"));
        MessageConsumer first = one.createDurableConsumer(topic, "s");
        MessageConsumer second = two.createDurableConsumer(topic, "s");
        Env.send(one, topic, "both");
        texts(first, "both");
        texts(second, "both");
        first.close();
        second.close();
        one.unsubscribe("s");
        Env.send(two, topic, "second");
        texts(two.createDurableConsumer(topic, "s"), "second");
    }

    @Case
    static void durableNeedsAClientId(Env env) throws Exception {
        Session session = session(env.connect());
        raises(IllegalStateException.class, () -> session.createDurableConsumer(env.topic(), "s"));
    }

    @Case
    static void sharedConsumersShare(Env env) throws Exception {
        Topic topic = env.topic();
        Connection connection = env.client("s");
        MessageConsumer one = session(connection).createSharedConsumer(topic, "share");
        MessageConsumer two = session(connection).createSharedConsumer(topic, "share");
        Session session = session(env.connect());
        publish(session, topic, 40);
        shared(40, one, two);
    }

    @Case
    static void sharedAndNotDurableEndsWithItsConsumers(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("v"));
        MessageConsumer one = session.createSharedConsumer(topic, "share");
        MessageConsumer two = session.createSharedConsumer(topic, "share");
        one.close();
        Env.send(session, topic, "kept");
        texts(two, "kept");
        two.close();
        Env.send(session, topic, "lost");
        MessageConsumer three = session.createSharedConsumer(topic, "share");
        nothing(three);
    }

    @Case
    static void sharedOnesOfNobodyAreGlobal(Env env) throws Exception {
        Topic topic = env.topic();
        String name = env.name();
        MessageConsumer one = session(env.connect()).createSharedConsumer(topic, name);
        MessageConsumer two = session(env.connect()).createSharedConsumer(topic, name);
        publish(session(env.connect()), topic, 40);
        shared(40, one, two);
    }

    @Case
    static void sharedOnesOfTwoClientsAreTwo(Env env) throws Exception {
        Topic topic = env.topic();
        MessageConsumer one = session(env.client("a")).createSharedConsumer(topic, "share");
        MessageConsumer two = session(env.client("b")).createSharedConsumer(topic, "share");
        Env.send(session(env.connect()), topic, "1", "2");
        texts(one, "1", "2");
        texts(two, "1", "2");
    }

    @Case
    static void sharedDurableKeepsMessages(Env env) throws Exception {
        Topic topic = env.topic();
        Connection connection = env.client("sd");
        Session session = session(connection);
        MessageConsumer one = session.createSharedDurableConsumer(topic, "share");
        MessageConsumer two = session.createSharedDurableConsumer(topic, "share");
        raises(JMSException.class, () -> session.unsubscribe("share"));
        one.close();
        two.close();
        Session publisher = session(env.connect());
        publish(publisher, topic, 3);
        one = session.createSharedDurableConsumer(topic, "share");
        texts(one, "0", "1", "2");
        two = session.createSharedDurableConsumer(topic, "share");
        publish(publisher, topic, 40);
        shared(40, one, two);
        one.close();
        two.close();
        session.unsubscribe("share");
        raises(InvalidDestinationException.class, () -> session.unsubscribe("share"));
    }

    @Case
    static void globalDurableKeepsMessages(Env env) throws Exception {
        Topic topic = env.topic();
        String name = env.name();
        Connection first = env.connect();
        session(first).createSharedDurableConsumer(topic, name);
        first.close();
        Env.send(session(env.connect()), topic, "1", "2");
        Session session = session(env.connect());
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name);
        texts(consumer, "1", "2");
        consumer.close();
        session.unsubscribe(name);
        raises(InvalidDestinationException.class, () -> session.unsubscribe(name));
    }

    @Case
    static void sharedKindsHaveTheirOwnNames(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("k"));
        MessageConsumer lasting = session.createSharedDurableConsumer(topic, "same");
        MessageConsumer passing = session.createSharedConsumer(topic, "same");
        Env.send(session, topic, "both");
        texts(lasting, "both");
        texts(passing, "both");
        lasting.close();
        session.unsubscribe("same");
        Env.send(session, topic, "passing");
        texts(passing, "passing");
    }

    @Case
    static void sharedAndUnsharedDurableExclude(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("x"));
        MessageConsumer shared = session.createSharedDurableConsumer(topic, "same");
        raises(JMSException.class, () -> session.createDurableConsumer(topic, "same"));
        shared.close();
        session.unsubscribe("same");
        MessageConsumer unshared = session.createDurableConsumer(topic, "same");
        raises(JMSException.class, () -> session.createSharedDurableConsumer(topic, "same"));
        unshared.close();
        session.unsubscribe("same");
    }

    @Case
    static void anotherSelectorOfAnActiveSharedOneIsRefused(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("as"));
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "share", "JMSType = 'a'");
        raises(JMSException.class, () -> session.createSharedDurableConsumer(topic, "share", "JMSType = 'b'"));
        consumer.close();
        session.unsubscribe("share");
    }

    @Case
    static void sharedWithSelector(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("sel"));
        MessageConsumer consumer = session.createSharedConsumer(topic, "share", "JMSType = 'a'");
        for (String type : new String[] {"b", "a"}) {
            TextMessage message = session.createTextMessage(type);
            message.setJMSType(type);
            session.createProducer(topic).send(message);
        }
        texts(consumer, "a");
        nothing(consumer);
    }

    @Case
    static void noLocal(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("nl"));
        MessageConsumer deaf = session.createConsumer(topic, null, true);
        MessageConsumer hearing = session.createConsumer(topic, null, false);
        Env.send(session, topic, "own");
        Env.send(session(env.connect()), topic, "foreign");
        texts(hearing, "own", "foreign");
        texts(deaf, "foreign");
        nothing(deaf);
    }

    @Case
    static void noLocalAndDurable(Env env) throws Exception {
        Topic topic = env.topic();
        Session session = session(env.client("nld"));
        MessageConsumer consumer = session.createDurableConsumer(topic, "s", null, true);
        Env.send(session, topic, "own");
        Env.send(session(env.connect()), topic, "foreign");
        eq("foreign", text(consumer));
        nothing(consumer);
        consumer.close();
        session.unsubscribe("s");
    }

    @Case
    static void sharedRedeliversToAnother(Env env) throws Exception {
        Topic topic = env.topic();
        Connection connection = env.client("re");
        Session one = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer first = one.createSharedDurableConsumer(topic, "share");
        Env.send(session(connection), topic, "1");
        texts(first, "1");
        Session two = session(connection);
        MessageConsumer second = two.createSharedDurableConsumer(topic, "share");
        nothing(second);
        one.close();
        texts(second, "1");
        second.close();
        two.unsubscribe("share");
    }
}
