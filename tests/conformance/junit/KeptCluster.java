import java.util.Optional;
import org.apache.kafka.common.test.api.ClusterConfig;

/** The cluster of the last test, for a next one of the same class that asks for the same: starting servers costs most of a test's time. */
final class KeptCluster {
  private ClusterConfig config;
  private RunningServers servers;

  /** The kept servers, if they are what `wanted` asks for; others are ended. */
  Optional<RunningServers> take(ClusterConfig wanted) throws InterruptedException {
    if (servers == null || !isSame(config, wanted)) {
      end();
      return Optional.empty();
    }
    RunningServers taken = servers;
    servers = null;
    return Optional.of(taken);
  }

  /** Keeps servers that were started for `config`, and that nothing is left on. */
  void put(ClusterConfig config, RunningServers servers) {
    this.config = config;
    this.servers = servers;
  }

  /** Ends the servers that are kept, if there are any. */
  void end() throws InterruptedException {
    if (servers != null) {
      RunningServers ended = servers;
      servers = null;
      ended.end();
    }
  }

  private static boolean isSame(ClusterConfig one, ClusterConfig other) {
    return one.numBrokers() == other.numBrokers()
        && one.brokerSecurityProtocol() == other.brokerSecurityProtocol()
        && one.brokerListenerName().equals(other.brokerListenerName())
        && one.serverProperties().equals(other.serverProperties())
        && one.perServerOverrideProperties().equals(other.perServerOverrideProperties());
  }
}
