package org.apache.kafka.common.test;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.server.BrokerServer;
import org.apache.kafka.clients.CommonClientConfigs;

/**
 * The servers that the embedded clusters of Kafka Connect's and Kafka Streams' tests start.
 *
 * <p>It stands before Kafka's class of the same name in the class path, and has those of its methods that these clusters call. Servers of
 * Bearlake are started by {@link Servers}, an implementation of which has no package.
 */
public final class KafkaClusterTestKit implements AutoCloseable {
  private final Servers servers;
  private final MockFaultHandler faults = new MockFaultHandler("no faults of brokers");

  private KafkaClusterTestKit(Servers servers) {
    this.servers = servers;
  }

  /** Starts servers with a test's settings of brokers. */
  public interface Servers extends AutoCloseable {
    /** The name of the class that implements it. Its constructor takes the number of servers and their settings. */
    String IMPLEMENTATION = "EmbeddedServers";

    /** Starts them; returns once they serve. */
    void start() throws Exception;

    /** Their addresses. */
    String bootstrap();

    /** What stands for brokers, from id 0 on. */
    Map<Integer, BrokerServer> brokers();

    @Override
    void close() throws Exception;
  }

  /** What a test asks for. */
  public static final class Builder {
    private final TestKitNodes nodes;
    private final Map<String, String> settings = new HashMap<>();

    public Builder(TestKitNodes nodes) {
      this.nodes = nodes;
    }

    public Builder setConfigProp(String key, Object value) {
      settings.put(key, String.valueOf(value));
      return this;
    }

    public KafkaClusterTestKit build() throws ReflectiveOperationException {
      Object made =
          Class.forName(Servers.IMPLEMENTATION)
              .getDeclaredConstructor(int.class, Map.class)
              .newInstance(nodes.brokerNodes().size(), settings);
      return new KafkaClusterTestKit((Servers) made);
    }
  }

  /** Does nothing: there is no storage to format. */
  public void format() {}

  public void startup() throws Exception {
    servers.start();
  }

  /** Returns at once: servers that have started serve. */
  public void waitForReadyBrokers() {}

  public String bootstrapServers() {
    return servers.bootstrap();
  }

  public Properties clientProperties() {
    Properties properties = new Properties();
    properties.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers());
    return properties;
  }

  public Map<Integer, BrokerServer> brokers() {
    return Collections.unmodifiableMap(servers.brokers());
  }

  public MockFaultHandler nonFatalFaultHandler() {
    return faults;
  }

  public MockFaultHandler fatalFaultHandler() {
    return faults;
  }

  @Override
  public void close() throws Exception {
    servers.close();
  }
}
