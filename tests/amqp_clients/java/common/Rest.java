package common;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;

/** Makes and deletes destinations by the administration of the broker over HTTP, as the user root. */
public final class Rest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String url;

    public Rest(String url) {
        this.url = url;
    }

    /** @param type "queue" or "topic" */
    public void create(String type, String name) {
        ask("POST", "/destinations", "{\"name\": \"" + name + "\", \"type\": \"" + type + "\"}", 201);
    }

    public void delete(String type, String name) {
        ask("DELETE", "/destinations/" + type + "/" + name, null, 204);
    }

    private void ask(String method, String path, String body, int expected) {
        var login = Base64.getEncoder().encodeToString("root:secret".getBytes(StandardCharsets.UTF_8));
        var request = HttpRequest.newBuilder(URI.create(url + path))
                .timeout(PATIENCE)
                .header("Authorization", "Basic " + login)
                .header("Content-Type", "application/json")
                .method(method, body == null
                        ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body))
                .build();
        try {
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != expected) {
                throw new IllegalStateException(
                        method + " " + path + ": " + answer.statusCode() + " " + answer.body());
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(method + " " + path, error);
        }
    }
}
