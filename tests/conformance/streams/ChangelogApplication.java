import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Keeps the newest value of each key of a topic in a state store, whose changelog has key compaction. A null value deletes its key.
 *
 * <p>Prints the store once the keys "end0" and "end1" have the asked value, and how many records it has restored.
 */
public final class ChangelogApplication {
  private static final String STORE = "newest";
  private static final Duration POLL = Duration.ofMillis(500);

  private ChangelogApplication() {}

  /** Arguments: the servers, the folder for the state, the input topic, and the value that ends the input. */
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "changelog");
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
    properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
    properties.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
    properties.put(StreamsConfig.topicPrefix("table.freshness_ms"), "200");
    properties.put(StreamsConfig.topicPrefix("table.on_compaction"), "latest");
    StreamsBuilder builder = new StreamsBuilder();
    builder.table(
        arguments[2],
        Consumed.with(Serdes.String(), Serdes.String()),
        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(STORE).withLoggingEnabled(Map.of()));
    AtomicLong restored = new AtomicLong();
    try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
      streams.setGlobalStateRestoreListener(new Counting(restored));
      streams.start();
      TreeMap<String, String> found = new TreeMap<>();
      while (!arguments[3].equals(found.get("end0")) || !arguments[3].equals(found.get("end1"))) {
        Thread.sleep(POLL.toMillis());
        if (streams.state() == KafkaStreams.State.RUNNING) {
          found = content(streams);
        }
      }
      System.out.println("RESTORED " + restored.get());
      found.forEach((key, value) -> System.out.println("STORE " + key + " " + value));
    }
  }

  private static TreeMap<String, String> content(KafkaStreams streams) {
    ReadOnlyKeyValueStore<String, String> store =
        streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, String>keyValueStore()));
    TreeMap<String, String> found = new TreeMap<>();
    try (KeyValueIterator<String, String> all = store.all()) {
      all.forEachRemaining(row -> found.put(row.key, row.value));
    }
    return found;
  }

  private record Counting(AtomicLong restored) implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
      restored.addAndGet(count);
    }

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long total) {}
  }
}
