package joram;

import common.Rest;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.naming.Context;
import javax.naming.NameNotFoundException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.objectweb.jtests.jms.admin.Admin;

/** What JORAM's tests ask of an administrator: objects to look up, and destinations that are made and deleted. */
public final class JoramAdmin implements Admin {
    private final Map<String, Object> objects = new ConcurrentHashMap<>();
    private final Rest rest = new Rest(System.getProperty("broker.admin"));

    @Override
    public String getName() {
        return "raybroker";
    }

    /** A context that looks up, and is closed: the tests do nothing else with it. */
    @Override
    public Context createContext() {
        return (Context) Proxy.newProxyInstance(
                Context.class.getClassLoader(), new Class<?>[] {Context.class}, (proxy, method, arguments) -> {
                    switch (method.getName()) {
                        case "lookup":
                            Object found = objects.get(String.valueOf(arguments[0]));
                            if (found == null) {
                                throw new NameNotFoundException(String.valueOf(arguments[0]));
                            }
                            return found;
                        case "close":
                            return null;
                        default:
                            throw new UnsupportedOperationException(method.getName());
                    }
                });
    }

    @Override
    public void createConnectionFactory(String name) {
        objects.put(name, new JmsConnectionFactory(
                System.getProperty("broker.user"), System.getProperty("broker.password"),
                System.getProperty("broker.url")));
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createQueue(String name) {
        rest.create("queue", name);
        objects.put(name, new JmsQueue(name));
    }

    @Override
    public void createTopic(String name) {
        rest.create("topic", name);
        objects.put(name, new JmsTopic(name));
    }

    @Override
    public void deleteQueue(String name) {
        objects.remove(name);
        rest.delete("queue", name);
    }

    @Override
    public void deleteTopic(String name) {
        objects.remove(name);
        rest.delete("topic", name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        objects.remove(name);
    }

    @Override
    public void startServer() {
        // The broker runs before the tests do.
    }

    @Override
    public void stopServer() {
        // It serves the next test.
    }

    @Override
    public void start() {
        // See startServer.
    }

    @Override
    public void stop() {
        // See stopServer.
    }
}
