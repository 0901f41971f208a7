package cases;

import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.raises;
import static cases.Env.text;

import jakarta.jms.DeliveryMode;
import jakarta.jms.IllegalStateRuntimeException;
import jakarta.jms.InvalidDestinationRuntimeException;
import jakarta.jms.InvalidSelectorRuntimeException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSSecurityRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.Map;

/** The simplified API of JMS 2.0. */
final class Contexts {
    private Contexts() {}

    @Case
    static void sendAndReceiveBodies(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = env.queue();
        context.createProducer().send(queue, "text").send(queue, new byte[] {1, 2}).send(queue, Map.of("k", (Object) 1));
        JMSConsumer consumer = context.createConsumer(queue);
        eq("text", text(consumer));
        eq(new byte[] {1, 2}, consumer.receiveBody(byte[].class, Env.WAIT_MS));
        eq(Map.of("k", 1), consumer.receiveBody(Map.class, Env.WAIT_MS));
        eq(null, consumer.receiveBodyNoWait(String.class));
    }

    @Case
    static void producersInOneLine(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = env.queue();
        context.createProducer().setProperty("color", "red").setProperty("n", 3).setPriority(7).setTimeToLive(60_000)
                .setDeliveryMode(DeliveryMode.NON_PERSISTENT).setJMSCorrelationID("c").setJMSType("t")
                .setJMSReplyTo(queue).send(queue, "b");
        Message found = context.createConsumer(queue, "color = 'red' AND n = 3").receive(Env.WAIT_MS);
        eq(7, found.getJMSPriority());
        eq(DeliveryMode.NON_PERSISTENT, found.getJMSDeliveryMode());
        eq("c", found.getJMSCorrelationID());
        eq("t", found.getJMSType());
        eq(queue, found.getJMSReplyTo());
        check(found.getJMSExpiration() > 0, "no expiration");
    }

    @Case
    static void contextsOfOneConnection(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        JMSContext other = env.keep(context.createContext(JMSContext.SESSION_TRANSACTED));
        Queue queue = env.queue();
        other.createProducer().send(queue, "1");
        JMSConsumer consumer = context.createConsumer(queue);
        eq(null, consumer.receive(Env.ABSENT_MS));
        other.commit();
        eq("1", text(consumer));
        other.createProducer().send(queue, "2");
        other.rollback();
        eq(null, consumer.receive(Env.ABSENT_MS));
        context.close();
        other.createProducer().send(queue, "3");
        other.commit();
    }

    @Case
    static void clientAcknowledge(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.CLIENT_ACKNOWLEDGE);
        Queue queue = env.queue();
        context.createProducer().send(queue, "1").send(queue, "2");
        JMSConsumer consumer = context.createConsumer(queue);
        eq("1", text(consumer));
        context.recover();
        eq("1", text(consumer));
        context.acknowledge();
        context.close();
        JMSConsumer other = env.context(JMSContext.AUTO_ACKNOWLEDGE).createConsumer(queue);
        eq("2", text(other));
        eq(null, other.receive(Env.ABSENT_MS));
    }

    @Case
    static void subscriptionsOfAContext(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        context.setClientID(env.name());
        Topic topic = env.topic();
        JMSConsumer durable = context.createDurableConsumer(topic, "d");
        JMSConsumer shared = context.createSharedConsumer(topic, "s");
        JMSConsumer both = context.createSharedDurableConsumer(topic, "b");
        context.createProducer().send(topic, "all");
        for (JMSConsumer consumer : new JMSConsumer[] {durable, shared, both}) {
            eq("all", text(consumer));
            consumer.close();
        }
        context.unsubscribe("d");
        context.unsubscribe("b");
        raises(InvalidDestinationRuntimeException.class, () -> context.unsubscribe("d"));
    }

    @Case
    static void theyStartByThemselves(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = env.queue();
        context.setAutoStart(false);
        context.createProducer().send(queue, "held");
        JMSConsumer consumer = context.createConsumer(queue);
        eq(null, consumer.receive(Env.ABSENT_MS));
        context.start();
        eq("held", text(consumer));
    }

    @Case
    static void errorsAreUnchecked(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        raises(InvalidSelectorRuntimeException.class, () -> context.createConsumer(env.queue(), "=="));
        raises(JMSSecurityRuntimeException.class, () -> env.factory("").createContext("ann", "wrong").start());
        context.close();
        raises(IllegalStateRuntimeException.class, () -> context.createTextMessage());
    }

    @Case
    static void temporaryQueueAndBrowser(Env env) throws Exception {
        JMSContext context = env.context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue queue = context.createTemporaryQueue();
        context.createProducer().send(queue, "seen");
        var all = context.createBrowser(queue).getEnumeration();
        eq("seen", ((TextMessage) all.nextElement()).getText());
        check(!all.hasMoreElements(), "there is more");
        eq("seen", text(context.createConsumer(queue)));
    }
}
