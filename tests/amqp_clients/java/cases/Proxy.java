package cases;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A way to the broker that can be cut: a port of its own, whose connections go on to the broker. */
final class Proxy implements AutoCloseable {
    private final ServerSocket port = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> sockets = new CopyOnWriteArrayList<>();
    private final String host;
    private final int target;
    private volatile boolean refusing;
    private volatile boolean over;

    Proxy(String url) throws IOException {
        URI address = URI.create(url);
        host = address.getHost();
        target = address.getPort();
        start(this::accept);
    }

    String address() {
        return "amqp://127.0.0.1:" + port.getLocalPort();
    }

    /** Ends the connections that there are; others may follow. */
    void cut() {
        for (Socket socket : sockets) {
            quietly(socket);
        }
        sockets.clear();
    }

    /** Ends all connections now and later. */
    void gone() {
        refusing = true;
        cut();
    }

    @Override
    public void close() throws IOException {
        over = true;
        port.close();
        cut();
    }

    private void accept() {
        while (!over) {
            try {
                Socket near = port.accept();
                if (refusing) {
                    quietly(near);
                    continue;
                }
                near.setTcpNoDelay(true);
                var far = new Socket(host, target);
                far.setTcpNoDelay(true);
                sockets.add(near);
                sockets.add(far);
                start(() -> copy(near, far));
                start(() -> copy(far, near));
            } catch (IOException error) {
                // The port was closed, or the broker has refused: whoever connects will find out.
            }
        }
    }

    private static void copy(Socket from, Socket to) {
        try (InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            in.transferTo(out);
        } catch (IOException error) {
            // One side has gone, and takes the other one along.
        }
        quietly(from);
        quietly(to);
    }

    private static void quietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException error) {
            // It is gone in any case.
        }
    }

    private static void start(Runnable body) {
        var thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
    }
}
