import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.internals.Topic;

/**
 * A consumer that stands for a reader of `__share_group_state`.
 *
 * <p>Kafka keeps the state of share groups in that topic, Bearlake in its metadata store. Tests read the topic to see that the state of
 * their group is stored: the more than two records that they wait for come once two groups (the one that prepares every test, and the
 * test's own) have stored offsets. Everything else is up to the consumer behind it.
 */
final class ShareStateReader implements InvocationHandler {
  private static final int RECORD_COUNT = 3;

  private final Consumer<?, ?> inner;
  private final Admin admin;
  private boolean readsState;

  private ShareStateReader(Consumer<?, ?> inner, Admin admin) {
    this.inner = inner;
    this.admin = admin;
  }

  @SuppressWarnings("unchecked") // a proxy has no type arguments
  static <K, V> Consumer<K, V> of(Consumer<K, V> inner, Admin admin) {
    Class<?>[] interfaces = {Consumer.class};
    ShareStateReader reader = new ShareStateReader(inner, admin);
    return (Consumer<K, V>) Proxy.newProxyInstance(ShareStateReader.class.getClassLoader(), interfaces, reader);
  }

  @Override
  public Object invoke(Object consumer, Method method, Object[] arguments) throws Throwable {
    if (method.getName().equals("assign")) {
      readsState =
          ((Collection<?>) arguments[0])
              .stream().allMatch(item -> ((TopicPartition) item).topic().equals(Topic.SHARE_GROUP_STATE_TOPIC_NAME));
      if (readsState) {
        return null;
      }
    }
    if (readsState && method.getName().equals("seekToBeginning")) {
      return null;
    }
    if (readsState && method.getName().equals("poll") && arguments[0] instanceof Duration) {
      return stored();
    }
    try {
      return method.invoke(inner, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  private ConsumerRecords<byte[], byte[]> stored() throws InterruptedException {
    var listed = RunningServers.answer(admin.listGroups(ListGroupsOptions.forShareGroups()).all());
    List<String> names = listed.stream().map(GroupListing::groupId).toList();
    Map<String, ListShareGroupOffsetsSpec> asked = new HashMap<>();
    names.forEach(name -> asked.put(name, new ListShareGroupOffsetsSpec()));
    var offsets = RunningServers.answer(admin.listShareGroupOffsets(asked).all());
    if (offsets.values().stream().filter(group -> !group.isEmpty()).count() < 2) {
      return ConsumerRecords.empty();
    }
    TopicPartition partition = new TopicPartition(Topic.SHARE_GROUP_STATE_TOPIC_NAME, 0);
    List<ConsumerRecord<byte[], byte[]>> records =
        IntStream.range(0, RECORD_COUNT)
            .mapToObj(at -> new ConsumerRecord<>(partition.topic(), 0, at, new byte[0], new byte[0]))
            .toList();
    return new ConsumerRecords<>(Map.of(partition, records), Map.of());
  }
}
