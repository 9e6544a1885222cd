import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.ReplicaManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.collection.immutable.Nil$;

/**
 * Parts of a broker that tests look at: its replicas and their logs.
 *
 * <p>Servers have no replicas. Every server serves every partition, so each broker has a replica of each partition that exists, with a log
 * that ends where the partition ends, and is as good as its leader.
 */
final class BrokerParts {
  private final int id;
  private final RunningServers servers;

  /** The parts of the broker `id`. */
  BrokerParts(int id, RunningServers servers) {
    this.id = id;
    this.servers = servers;
  }

  ReplicaManager replicas() {
    return StandIns.of(
        ReplicaManager.class,
        Map.of(
            "onlinePartition", arguments -> partition((TopicPartition) arguments[0]),
            "localLog", arguments -> log((TopicPartition) arguments[0])));
  }

  LogManager logs() {
    return StandIns.of(
        LogManager.class,
        Map.of("getLog", arguments -> log((TopicPartition) arguments[0]), "liveLogDirs", arguments -> Nil$.MODULE$));
  }

  /** The coordinator of groups, whose internal topic is always there. */
  GroupCoordinator groups() {
    return StandIns.of(GroupCoordinator.class, Map.of("groupMetadataTopicConfigs", arguments -> new Properties()));
  }

  private Option<Partition> partition(TopicPartition partition) {
    return option(
        find(partition)
            .map(found -> StandIns.of(Partition.class, Map.of("leaderIdIfLocal", arguments -> Option.apply((Object) id)))));
  }

  private Option<UnifiedLog> log(TopicPartition partition) {
    return option(
        find(partition)
            .map(found -> StandIns.of(UnifiedLog.class, Map.of("highWatermark", arguments -> servers.end(partition)))));
  }

  private Optional<TopicPartitionInfo> find(TopicPartition partition) {
    return servers.partitions(partition.topic()).stream()
        .filter(found -> found.partition() == partition.partition())
        .findFirst();
  }

  private static <T> Option<T> option(Optional<T> value) {
    return Option.apply(value.orElse(null));
  }
}
