import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Counts words with `group.protocol=streams` (KIP-1071): a repartition topic, and a store with a changelog. Runs until it is killed. */
public final class StreamsProtocol {
  private StreamsProtocol() {}

  /** Arguments: the servers, the application, the folder for the state, the processing guarantee, the input and the output topic. */
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[3]);
    properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
    properties.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 10_000);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[4], Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
        .count(
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
        .toStream()
        .mapValues(String::valueOf)
        .to(arguments[5], Produced.with(Serdes.String(), Serdes.String()));
    CompletableFuture<Throwable> failure = new CompletableFuture<>();
    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    streams.setStateListener((now, before) -> System.out.println("STATE " + now));
    streams.setUncaughtExceptionHandler(
        error -> {
          failure.complete(error);
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    Throwable error = failure.get();
    System.out.println("FAILED " + error);
    streams.close(Duration.ofSeconds(10));
    System.exit(1);
  }
}
