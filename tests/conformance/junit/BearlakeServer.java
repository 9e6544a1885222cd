import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** One `bearlake serve kafka` on free ports. */
final class BearlakeServer {
  private static final int START_TIMEOUT_S = 60;
  private static final int STOP_TIMEOUT_S = 30;
  private static final int POLL_INTERVAL_MS = 50;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Process process;
  private final Path log;
  private final JsonNode addresses;

  /**
   * Starts the server; returns once all its listeners accept connections.
   *
   * @param settings the settings file, as a tree of JSON
   * @param folder a new folder for the settings
   * @param log what the server writes to its output
   * @throws IllegalStateException the server does not serve in time; the message names its log
   */
  BearlakeServer(Map<String, Object> settings, Path folder, Path log) throws IOException, InterruptedException {
    this.log = log;
    Files.createDirectories(folder);
    Path file = folder.resolve("settings.yaml"); // JSON is YAML
    Path ready = folder.resolve("ready.json");
    JSON.writeValue(file.toFile(), settings);
    ProcessBuilder builder =
        new ProcessBuilder(
            System.getProperty("bearlake.program"), "serve", "kafka",
            "--config", file.toString(), "--ready-file", ready.toString(),
            "--kafka-port", "0", "--admin-port", "0");
    process = builder.redirectErrorStream(true).redirectOutput(log.toFile()).start();
    try {
      waitFor(ready);
      addresses = JSON.readTree(ready.toFile());
    } catch (IOException | InterruptedException | RuntimeException error) {
      process.destroyForcibly();
      throw error;
    }
  }

  private void waitFor(Path ready) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_TIMEOUT_S);
    while (!Files.exists(ready)) {
      if (process.waitFor(POLL_INTERVAL_MS, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("the server ended with " + process.exitValue() + ", see " + log);
      }
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException("the server does not serve after " + START_TIMEOUT_S + " s, see " + log);
      }
    }
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
   * Ends the server by SIGTERM.
   *
   * @throws IllegalStateException it had ended before, does not end in time, or ends with another code than 0
   */
  void stop() throws InterruptedException {
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
