import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;

/** An application with `group.protocol=streams` (KIP-1071). Prints why it ends. */
public final class StreamsProtocol {
  private static final int TIMEOUT_S = 60;

  private StreamsProtocol() {}

  /** Arguments: the servers, the folder for the state, the input topic. */
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-protocol");
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
    properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String())).foreach((key, value) -> {});
    CompletableFuture<Throwable> failure = new CompletableFuture<>();
    try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
      streams.setUncaughtExceptionHandler(
          error -> {
            failure.complete(error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
          });
      streams.start();
      for (Throwable error = failure.get(TIMEOUT_S, TimeUnit.SECONDS); error != null; error = error.getCause()) {
        System.out.println("FAILED " + error);
      }
    }
  }
}
