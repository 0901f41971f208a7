package reference;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.security.CheckType;
import org.apache.activemq.artemis.core.security.Role;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.server.impl.AddressInfo;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.spi.core.security.ActiveMQSecurityManager;

/**
 * The reference: another broker with AMQP 1.0, with the users of the tests and, over HTTP, the two requests by which
 * they make and delete destinations. Arguments: a folder for its journal, and its port (0: a free one). Says "ready
 * AMQP-PORT HTTP-PORT", and ends when its standard input does.
 */
public final class ArtemisServer {
    private static final Pattern NAME = Pattern.compile("\"name\"\\s*:\\s*\"([^\"]+)\"");
    private static final Pattern TYPE = Pattern.compile("\"type\"\\s*:\\s*\"([^\"]+)\"");

    private static final int JOURNAL_FILE_BYTES = 10 << 20;
    private static final int SYNCS = 100;

    private final EmbeddedActiveMQ broker = new EmbeddedActiveMQ();

    /** The users of raybroker's part: ann may everything, mute may connect and do nothing. */
    private static final class Users implements ActiveMQSecurityManager {
        @Override
        public boolean validateUser(String user, String password) {
            return Set.of("ann", "bob", "root", "mute").contains(String.valueOf(user)) && "secret".equals(password);
        }

        @Override
        public boolean validateUserAndRole(String user, String password, Set<Role> roles, CheckType check) {
            return validateUser(user, password) && !"mute".equals(user);
        }
    }

    private ArtemisServer(String folder, int port) throws Exception {
        var settings = new AddressSettings()
                .setAutoDeleteQueues(false)
                .setAutoDeleteAddresses(false)
                .setDeadLetterAddress(SimpleString.of("DLQ"))
                .setExpiryAddress(SimpleString.of("Expired"))
                .setMaxDeliveryAttempts(10);
        var configuration = new ConfigurationImpl()
                .setPersistenceEnabled(true)
                .setJournalType(JournalType.NIO)
                .setJournalFileSize(JOURNAL_FILE_BYTES)
                .setJournalBufferTimeout_NIO(syncNanos(folder))
                .setJournalDirectory(folder + File.separator + "journal")
                .setBindingsDirectory(folder + File.separator + "bindings")
                .setLargeMessagesDirectory(folder + File.separator + "large")
                .setPagingDirectory(folder + File.separator + "paging")
                .setSecurityEnabled(true)
                .setSecurityInvalidationInterval(0)
                .setMessageExpiryScanPeriod(500)
                .setGracefulShutdownEnabled(false)
                .addAcceptorConfiguration("amqp", "tcp://127.0.0.1:" + port + "?protocols=AMQP")
                .addAddressSetting("#", settings);
        broker.setConfiguration(configuration);
        broker.setSecurityManager(new Users());
        broker.start();
        for (String name : new String[] {"DLQ", "Expired"}) {
            broker.getActiveMQServer().createQueue(
                    QueueConfiguration.of(name).setRoutingType(RoutingType.ANYCAST), true);
        }
    }

    /** How long a sync takes on this disk: what its own installer gives as the longest wait for more to write. */
    private static int syncNanos(String folder) throws IOException {
        Files.createDirectories(Path.of(folder));
        Path file = Path.of(folder, "sync");
        try (var channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            var block = ByteBuffer.allocate(4096);
            long began = System.nanoTime();
            for (int number = 0; number < SYNCS; number++) {
                channel.write(block.rewind(), 4096L * number);
                channel.force(false);
            }
            return (int) ((System.nanoTime() - began) / SYNCS);
        } finally {
            Files.delete(file);
        }
    }

    private void create(String name, String type) throws Exception {
        if (type.startsWith("q")) {
            broker.getActiveMQServer().createQueue(
                    QueueConfiguration.of(name).setRoutingType(RoutingType.ANYCAST), true);
        } else {
            broker.getActiveMQServer().addAddressInfo(
                    new AddressInfo(SimpleString.of(name), RoutingType.MULTICAST));
        }
    }

    private void delete(String name) throws Exception {
        var address = SimpleString.of(name);
        if (broker.getActiveMQServer().getAddressInfo(address) != null) {
            broker.getActiveMQServer().removeAddressInfo(address, null, true);
        }
    }

    private void answer(HttpExchange exchange) throws IOException {
        int status = 204;
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        try {
            String path = exchange.getRequestURI().getPath();
            if ("POST".equals(exchange.getRequestMethod())) {
                Matcher name = NAME.matcher(body);
                Matcher type = TYPE.matcher(body);
                if (name.find() && type.find()) {
                    create(name.group(1), type.group(1));
                    status = 201;
                } else {
                    status = 400;
                }
            } else {
                delete(path.substring(path.lastIndexOf('/') + 1));
            }
        } catch (Exception error) {
            error.printStackTrace();
            status = 500;
        }
        exchange.sendResponseHeaders(status, -1);
        exchange.close();
    }

    private static int free() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int port = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        port = port == 0 ? free() : port;
        var server = new ArtemisServer(arguments[0], port);
        var http = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        http.createContext("/", server::answer);
        http.start();
        System.out.println("ready " + port + " " + http.getAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
            // Whoever has started this program closes its input.
        }
        http.stop(0);
        server.broker.stop();
        System.exit(0);
    }
}
