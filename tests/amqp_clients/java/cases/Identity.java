package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.raises;
import static cases.Env.session;

import jakarta.jms.Connection;
import jakarta.jms.IllegalStateException;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import org.apache.qpid.jms.JmsQueue;

/** Who may connect, and under which id; who may send and receive. */
final class Identity {
    private Identity() {}

    private static Connection as(Env env, String user, String password, String options) throws JMSException {
        return env.keep(env.factory(options).createConnection(user, password));
    }

    @Case
    static void aClientIdIsOfOneConnection(Env env) throws Exception {
        Connection first = env.client("id");
        raises(InvalidClientIDException.class, () -> env.client("id"));
        raises(InvalidClientIDException.class, () -> env.connect("jms.clientID=" + first.getClientID()));
        first.close();
        env.client("id");
    }

    @Case
    static void aClientIdIsGivenOnce(Env env) throws Exception {
        Connection connection = env.client("once");
        raises(IllegalStateException.class, () -> connection.setClientID("twice"));
        Connection used = env.keep(env.factory("").createConnection());
        session(used);
        raises(IllegalStateException.class, () -> used.setClientID("late"));
        Connection other = env.keep(env.factory("").createConnection());
        raises(InvalidClientIDException.class, () -> other.setClientID(""));
    }

    @Case
    static void wrongPassword(Env env) throws Exception {
        raises(JMSSecurityException.class, () -> as(env, "ann", "wrong", "").start());
        raises(JMSSecurityException.class, () -> as(env, "nobody", "secret", "").start());
    }

    @Case
    static void mechanisms(Env env) throws Exception {
        Connection plain = as(env, "ann", "secret", "amqp.saslMechanisms=PLAIN");
        plain.start();
        eq(null, session(plain).createConsumer(env.queue()).receiveNoWait());
    }

    @Case
    static void mechanismsThatSendNoPassword(Env env) throws Exception {
        for (String mechanism : new String[] {"SCRAM-SHA-256", "SCRAM-SHA-512"}) {
            String only = "amqp.saslMechanisms=" + mechanism;
            Connection proved = as(env, "ann", "secret", only);
            proved.start();
            eq(null, session(proved).createConsumer(env.queue()).receiveNoWait());
            raises(JMSSecurityException.class, () -> as(env, "ann", "wrong", only).start());
        }
    }

    @Case
    static void whoMayNotSend(Env env) throws Exception {
        Queue queue = env.queue();
        Session session = session(as(env, "mute", "secret", ""));
        raises(JMSSecurityException.class, () -> Env.send(session, queue, "no"));
        raises(JMSException.class, () -> session.createProducer(null).send(queue, session.createTextMessage("no")));
        Env.nothing(session(env.connect()).createConsumer(queue));
    }

    @Case
    static void whoMayNotReceive(Env env) throws Exception {
        Queue queue = env.queue();
        Session session = session(as(env, "mute", "secret", ""));
        raises(JMSSecurityException.class, () -> session.createConsumer(queue));
        raises(JMSSecurityException.class, () -> session.createBrowser(queue).getEnumeration().hasMoreElements());
        raises(JMSException.class, () -> session.createConsumer(env.topic()));
    }

    @Case
    static void aRefusalLeavesTheConnection(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        raises(JMSException.class, () -> session.createConsumer(env.queue(), "="));
        Queue queue = env.queue();
        Env.send(session, queue, "on");
        Env.texts(session.createConsumer(queue), "on");
    }

    @Case
    static void aNameThatCannotBe(Env env) throws Exception {
        Session session = session(env.connect());
        raises(InvalidDestinationException.class, () -> session.createConsumer(null));
        raises(InvalidDestinationException.class, () -> session.createProducer(null).send(null, session.createMessage()));
    }

    @Case
    static void closedThingsSaySo(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        var producer = session.createProducer(queue);
        producer.close();
        raises(IllegalStateException.class, () -> producer.send(session.createMessage()));
        session.close();
        session.close();
        raises(IllegalStateException.class, () -> session.createConsumer(queue));
        connection.close();
        connection.close();
        raises(IllegalStateException.class, () -> connection.createSession());
    }

    @Case
    static void destinationsAreMadeOnDemand(Env env) throws Exception {
        var queue = new JmsQueue(env.name());
        Session session = session(env.connect());
        Env.send(session, queue, "made");
        Env.texts(session.createConsumer(queue), "made");
        check(session.createQueue(queue.getAddress()).equals(queue), "names are equal");
    }
}
