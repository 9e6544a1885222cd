import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import kafka.server.BrokerServer;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.KafkaClusterTestKit;
import org.apache.kafka.common.test.api.ClusterConfig;

/** Servers of Bearlake in an embedded cluster of Kafka Connect's or Kafka Streams' tests, which starts and ends them itself. */
public final class EmbeddedServers implements KafkaClusterTestKit.Servers {
  private static final AtomicInteger COUNT = new AtomicInteger();

  private final ClusterConfig config;
  private final Map<Integer, BrokerServer> brokers = new HashMap<>();
  private RunningServers servers;

  /** `settings`: those of Kafka's brokers. */
  public EmbeddedServers(int count, Map<String, String> settings) {
    config =
        ClusterConfig.defaultBuilder()
            .setBrokers(count)
            .setBrokerListenerName(ListenerName.normalised("PLAINTEXT"))
            .setServerProperties(settings)
            .build();
  }

  @Override
  public void start() throws Exception {
    servers = new RunningServers(config, "embedded-" + COUNT.incrementAndGet());
    for (BearlakeServer server : servers.all()) {
      brokers.put(brokers.size(), StoppableBroker.of(server));
    }
  }

  @Override
  public String bootstrap() {
    return servers.bootstrap();
  }

  @Override
  public Map<Integer, BrokerServer> brokers() {
    return brokers;
  }

  @Override
  public void close() throws InterruptedException {
    if (servers != null) {
      servers.end();
    }
  }
}
