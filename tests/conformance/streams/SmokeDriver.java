import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * Writes the input of Kafka Streams' smoke test, waits until the application has worked on all of it, and checks the results.
 *
 * <p>The test's own driver checks at once. It fails if an instance that was killed has not caught up by then.
 */
public final class SmokeDriver {
  private static final int KEY_COUNT = 20;
  private static final int RECORDS_PER_KEY = 1_000;
  private static final Duration POLL = Duration.ofSeconds(1);

  /** How long no topic may have grown, and no transaction may have been open, until the application has nothing left to do. */
  private static final int QUIET_POLLS = 20;

  private static final int POLLS_MAX = 300;

  private SmokeDriver() {}

  /** Arguments: the servers, and for how many seconds to write. Ends with 0 if all results are there and right. */
  public static void main(String[] arguments) throws Exception {
    String servers = arguments[0];
    Duration duration = Duration.ofSeconds(Long.parseLong(arguments[1]));
    Map<String, Set<Integer>> written = SmokeTestDriver.generate(servers, KEY_COUNT, RECORDS_PER_KEY, duration);
    System.out.println("WRITTEN");
    awaitQuiet(servers);
    System.out.println("QUIET");
    boolean passed = SmokeTestDriver.verify(servers, written, RECORDS_PER_KEY, true).passed();
    System.exit(passed ? 0 : 1);
  }

  private static void awaitQuiet(String servers) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", servers);
    try (Admin admin = Admin.create(properties)) {
      Map<TopicPartition, Long> before = Map.of();
      int quiet = 0;
      for (int poll = 0; poll < POLLS_MAX && quiet < QUIET_POLLS; poll++) {
        Map<TopicPartition, Long> ends = ends(admin, IsolationLevel.READ_UNCOMMITTED);
        boolean isDecided = ends.equals(ends(admin, IsolationLevel.READ_COMMITTED));
        quiet = isDecided && ends.equals(before) ? quiet + 1 : 0;
        before = ends;
        Thread.sleep(POLL.toMillis());
      }
      if (quiet < QUIET_POLLS) {
        throw new IllegalStateException("the application does not come to rest");
      }
    }
  }

  private static Map<TopicPartition, Long> ends(Admin admin, IsolationLevel level) throws Exception {
    List<TopicPartition> partitions =
        admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().values().stream()
            .flatMap(topic -> topic.partitions().stream().map(found -> new TopicPartition(topic.name(), found.partition())))
            .toList();
    Map<TopicPartition, OffsetSpec> asked = partitions.stream().collect(Collectors.toMap(key -> key, key -> OffsetSpec.latest()));
    Map<TopicPartition, Long> found = new TreeMap<>((a, b) -> a.toString().compareTo(b.toString()));
    for (Map.Entry<TopicPartition, ListOffsetsResultInfo> end :
        admin.listOffsets(asked, new ListOffsetsOptions(level)).all().get().entrySet()) {
      found.put(end.getKey(), end.getValue().offset());
    }
    return found;
  }
}
