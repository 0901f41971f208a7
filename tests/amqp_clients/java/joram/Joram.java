package joram;

import common.Result;
import java.util.HashMap;
import java.util.Map;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.objectweb.jtests.jms.conform.connection.ConnectionTest;
import org.objectweb.jtests.jms.conform.connection.TopicConnectionTest;
import org.objectweb.jtests.jms.conform.message.MessageBodyTest;
import org.objectweb.jtests.jms.conform.message.MessageDefaultTest;
import org.objectweb.jtests.jms.conform.message.MessageTypeTest;
import org.objectweb.jtests.jms.conform.message.headers.MessageHeaderTest;
import org.objectweb.jtests.jms.conform.message.properties.JMSXPropertyTest;
import org.objectweb.jtests.jms.conform.message.properties.MessagePropertyConversionTest;
import org.objectweb.jtests.jms.conform.message.properties.MessagePropertyTest;
import org.objectweb.jtests.jms.conform.queue.QueueBrowserTest;
import org.objectweb.jtests.jms.conform.queue.TemporaryQueueTest;
import org.objectweb.jtests.jms.conform.selector.SelectorSyntaxTest;
import org.objectweb.jtests.jms.conform.selector.SelectorTest;
import org.objectweb.jtests.jms.conform.session.QueueSessionTest;
import org.objectweb.jtests.jms.conform.session.SessionTest;
import org.objectweb.jtests.jms.conform.session.TopicSessionTest;
import org.objectweb.jtests.jms.conform.session.UnifiedSessionTest;
import org.objectweb.jtests.jms.conform.topic.TemporaryTopicTest;

/** JORAM's tests of JMS, one line of {@link Result} for each. */
public final class Joram {
    private static final Class<?>[] TESTS = {
        ConnectionTest.class, TopicConnectionTest.class, MessageBodyTest.class, MessageDefaultTest.class,
        MessageTypeTest.class, MessageHeaderTest.class, JMSXPropertyTest.class, MessagePropertyConversionTest.class,
        MessagePropertyTest.class, QueueBrowserTest.class, TemporaryQueueTest.class, SelectorSyntaxTest.class,
        SelectorTest.class, QueueSessionTest.class, SessionTest.class, TopicSessionTest.class,
        UnifiedSessionTest.class, TemporaryTopicTest.class,
    };

    private Joram() {}

    private static final class Lines extends RunListener {
        private final Map<String, Throwable> failures = new HashMap<>();
        private long began;

        private static String name(Description test) {
            String type = test.getClassName();
            return type.substring(type.lastIndexOf('.') + 1) + "." + test.getMethodName();
        }

        @Override
        public void testStarted(Description test) {
            began = System.nanoTime();
        }

        @Override
        public void testFailure(Failure failure) {
            failures.put(name(failure.getDescription()), failure.getException());
        }

        @Override
        public void testFinished(Description test) {
            Result.print(name(test), failures.get(name(test)), (System.nanoTime() - began) / 1e9);
        }
    }

    public static void main(String[] arguments) {
        var core = new JUnitCore();
        core.addListener(new Lines());
        System.exit(core.run(TESTS).wasSuccessful() ? 0 : 1);
    }
}
