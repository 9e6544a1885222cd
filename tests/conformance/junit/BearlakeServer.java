import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** One `bearlake serve kafka`. A server that is started again keeps its name, and so its node id, and its ports. */
final class BearlakeServer {
  private static final int START_TIMEOUT_S = 180;
  private static final int STOP_TIMEOUT_S = 30;
  private static final int POLL_INTERVAL_MS = 50;
  private static final String ANY_PORT = "0";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HttpClient HTTP = HttpClient.newHttpClient();

  private final Path file;
  private final Path ready;
  private final Path log;
  private Process process;
  private JsonNode addresses;
  private boolean isStopped;
  private boolean wasRestarted;

  /**
   * Starts the server, which needs {@link #awaitReady}.
   *
   * @param settings the settings file, as a tree of JSON
   * @param folder a new folder for the settings
   * @param log where the server appends its output
   */
  BearlakeServer(Map<String, Object> settings, Path folder, Path log) throws IOException {
    this.log = log;
    Files.createDirectories(folder);
    Files.deleteIfExists(log);
    file = folder.resolve("settings.yaml"); // JSON is YAML
    ready = folder.resolve("ready.json");
    JSON.writeValue(file.toFile(), settings);
    process = start();
  }

  private Process start() throws IOException {
    Files.deleteIfExists(ready);
    ProcessBuilder builder =
        new ProcessBuilder(
            System.getProperty("bearlake.program"), "serve", "kafka",
            "--config", file.toString(), "--ready-file", ready.toString(),
            "--admin-port", ANY_PORT);
    File output = log.toFile();
    return builder.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(output)).start();
  }

  /**
   * Returns once all listeners accept connections.
   *
   * @throws IllegalStateException the server does not serve in time; the message names its log
   */
  void awaitReady() throws IOException, InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_TIMEOUT_S);
    while (!Files.exists(ready)) {
      if (process.waitFor(POLL_INTERVAL_MS, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("the server ended with " + process.exitValue() + ", see " + log);
      }
      if (System.nanoTime() > deadline) {
        process.destroyForcibly();
        throw new IllegalStateException("the server does not serve after " + START_TIMEOUT_S + " s, see " + log);
      }
    }
    addresses = JSON.readTree(ready.toFile());
  }

  /** The address for the test's clients. */
  String bootstrap() {
    return addresses.get("kafka").asText();
  }

  /** The address for the harness. */
  String harness() {
    return addresses.get("kafka:" + ServerSettings.HARNESS_LISTENER).asText();
  }

  /**
   * The addresses, for the test's clients, of the servers to which this server sends its clients: those that it knows and that do not
   * drain.
   *
   * @throws IllegalStateException the server does not answer; the message names its log
   */
  Set<String> known() throws InterruptedException {
    URI servers = URI.create(addresses.get("admin").asText() + "/v1/servers");
    HttpRequest request = HttpRequest.newBuilder(servers).timeout(Duration.ofSeconds(RunningServers.TIMEOUT_S)).build();
    try {
      Set<String> known = new HashSet<>();
      for (JsonNode server : JSON.readTree(HTTP.send(request, BodyHandlers.ofString()).body()).path("servers")) {
        if (!server.get("is_draining").asBoolean()) {
          known.add(server.get("endpoints").get("kafka").asText());
        }
      }
      return known;
    } catch (IOException error) {
      throw new IllegalStateException("the server does not say which servers it knows, see " + log, error);
    }
  }

  boolean isRunning() {
    return process.isAlive();
  }

  /** Whether the server runs since its first start. */
  boolean isAsStarted() {
    return isRunning() && !wasRestarted;
  }

  /** Starts a server again that was stopped; returns once it serves. */
  void restart() throws IOException, InterruptedException {
    JsonNode settings = JSON.readTree(file.toFile());
    JsonNode listeners = settings.get("listeners");
    ((ObjectNode) listeners.get("kafka")).put("port", port(bootstrap()));
    ((ObjectNode) listeners.get("kafka_more").get(0)).put("port", port(harness()));
    JSON.writeValue(file.toFile(), settings);
    process = start();
    isStopped = false;
    wasRestarted = true;
    awaitReady();
  }

  /** The port of an address "host:port". */
  static int port(String address) {
    return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
  }

  /** Ends the server at once. */
  void kill() {
    process.destroyForcibly();
  }

  /**
   * Ends the server by SIGTERM. Does nothing if this was done before.
   *
   * @throws IllegalStateException it had ended before, does not end in time, or ends with another code than 0
   */
  void stop() throws InterruptedException {
    if (isStopped) {
      return;
    }
    isStopped = true;
    boolean wasAlive = process.isAlive();
    process.destroy();
    if (!process.waitFor(STOP_TIMEOUT_S, TimeUnit.SECONDS)) {
      process.destroyForcibly();
      throw new IllegalStateException("the server does not end " + STOP_TIMEOUT_S + " s after SIGTERM, see " + log);
    }
    if (!wasAlive || process.exitValue() != 0) {
      String when = wasAlive ? "after SIGTERM" : "during the test";
      throw new IllegalStateException("the server ended with " + process.exitValue() + " " + when + ", see " + log);
    }
  }
}
