import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.objenesis.ObjenesisStd;
import org.opentest4j.TestAbortedException;
import scala.Some;

/**
 * Servers of Bearlake on one metadata store, in place of the brokers that a test of Kafka asks for.
 *
 * <p>A test that reaches for the insides of a cluster is aborted, except for the authorizer, whose rules go through Kafka's API.
 */
final class BearlakeCluster implements ClusterInstance {
  private final ClusterConfig config;
  private final KeptCluster kept;
  private RunningServers servers;

  /** `kept`: where servers come from, and where they go. */
  BearlakeCluster(ClusterConfig config, KeptCluster kept) {
    this.config = config;
    this.kept = kept;
  }

  /** Starts the servers, or takes those of the test before. `name` names the folder and the logs of new ones. */
  void begin(String name) throws Exception {
    Optional<RunningServers> taken = kept.take(config);
    servers = taken.isPresent() ? taken.get() : new RunningServers(config, name);
    checkFeatures();
  }

  /** Aborts a test that asks for a level of a feature that the servers do not have. */
  private void checkFeatures() throws InterruptedException {
    var levels = RunningServers.answer(servers.harness.describeFeatures().featureMetadata()).finalizedFeatures();
    config.features()
        .forEach(
            (feature, level) -> {
              FinalizedVersionRange range = levels.get(feature.featureName());
              int found = range == null ? 0 : range.maxVersionLevel();
              if (found != level) {
                throw new TestAbortedException("needs " + feature.featureName() + " " + level + ", not " + found);
              }
            });
  }

  /**
   * Keeps the servers for the next test if nothing is left on them and the test did not fail, or else ends them.
   *
   * @throws IllegalStateException a server did not run, or did not end as it should, see {@link BearlakeServer#stop}
   */
  void end(boolean hasFailed) throws InterruptedException {
    if (servers == null) {
      return;
    }
    if (!hasFailed && servers.wipe()) {
      kept.put(config, servers);
    } else {
      servers.end();
    }
  }

  @Override
  public Map<Integer, KafkaBroker> brokers() {
    return servers.brokers;
  }

  @Override
  public void shutdownBroker(int id) {
    servers.brokers.get(id).shutdown();
  }

  @Override
  public void startBroker(int id) {
    servers.brokers.get(id).startup();
  }

  /** Waits until the servers that run know each other, and no others. */
  @Override
  public void waitForReadyBrokers() throws InterruptedException {
    servers.awaitAcquaintance();
  }

  @Override
  public String bootstrapServers() {
    return servers.bootstrap();
  }

  /** The ports of all servers, also of those that do not run. */
  @Override
  public List<Integer> brokerBoundPorts() {
    return servers.all().stream().map(server -> BearlakeServer.port(server.bootstrap())).toList();
  }

  @Override
  public ClusterConfig config() {
    return config;
  }

  @Override
  public ListenerName clientListener() {
    return config.brokerListenerName();
  }

  @Override
  public Type type() {
    return Type.KRAFT;
  }

  @Override
  public String clusterId() {
    try {
      return RunningServers.answer(servers.harness.describeCluster().clusterId());
    } catch (InterruptedException error) {
      throw new IllegalStateException("interrupted", error);
    }
  }

  @Override
  public Set<GroupProtocol> supportedGroupProtocols() {
    return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
  }

  /** Kafka's clients, which log in if the test's principal builder gives them a name without a login. */
  @Override
  public Map<String, Object> setClientSaslConfig(Map<String, Object> properties) {
    Map<String, Object> changed = new HashMap<>(servers.login);
    changed.putAll(ClusterInstance.super.setClientSaslConfig(properties));
    return changed;
  }

  /** A consumer with Kafka's defaults; of the topic with the state of share groups it has a stand-in. */
  @Override
  public <K, V> Consumer<K, V> consumer() {
    return ShareStateReader.of(ClusterInstance.super.consumer(), servers.harness);
  }

  /** Waits until the topic has its partitions. Internal topics are always there, with one partition. */
  @Override
  public void waitTopicCreation(String topic, int partitionCount) throws InterruptedException {
    if (!Topic.isInternal(topic)) {
      String problem = "no topic " + topic + " with " + partitionCount + " partitions";
      RunningServers.waitUntil(() -> partitionCount(topic) == partitionCount, problem);
    }
  }

  /** Waits until the topic is gone, which internal topics never are. Bearlake has no replicas whose deletion would take longer. */
  @Override
  public void waitTopicDeletion(String topic) throws InterruptedException {
    if (!Topic.isInternal(topic)) {
      RunningServers.waitUntil(() -> partitionCount(topic) == 0, "topic " + topic + " is still there");
    }
  }

  /** Returns at once: what one server has answered, every server knows. */
  @Override
  public void ensureConsistentMetadata() {}

  @Override
  public void createTopic(String topic, int partitionCount, short replicaCount, Map<String, String> configs)
      throws InterruptedException {
    Map<String, String> all = new HashMap<>(servers.topicConfigs);
    all.putAll(configs);
    ClusterInstance.super.createTopic(topic, partitionCount, replicaCount, all);
  }

  private int partitionCount(String topic) {
    return servers.partitions(topic).size();
  }

  @Override
  public List<Authorizer> authorizers() {
    return List.of(new RulesByAdmin(servers.harness));
  }

  /** One controller, made without its constructor: it has an authorizer and nothing else. */
  @Override
  public Map<Integer, ControllerServer> controllers() {
    ControllerServer controller = new ObjenesisStd().newInstance(ControllerServer.class);
    Authorizer authorizer = new RulesByAdmin(servers.harness);
    controller.authorizerPlugin_$eq(new Some<>(Plugin.wrapInstance(authorizer, null, "authorizer.class.name")));
    return Map.of(0, controller);
  }

  @Override
  public Set<Integer> controllerIds() {
    return Set.of(0);
  }

  @Override
  public boolean started() {
    return servers != null;
  }

  @Override
  public boolean stopped() {
    return false;
  }

  @Override
  public Optional<FaultHandlerException> firstFatalException() {
    return Optional.empty();
  }

  @Override
  public Optional<FaultHandlerException> firstNonFatalException() {
    return Optional.empty();
  }

  @Override
  public void start() {
    throw inside("start");
  }

  @Override
  public void stop() {
    throw inside("stop");
  }

  @Override
  public ListenerName controllerListenerName() {
    throw inside("controllerListenerName");
  }

  @Override
  public String bootstrapControllers() {
    throw inside("bootstrapControllers");
  }

  private static TestAbortedException inside(String method) {
    return new TestAbortedException("needs the inside of a cluster of Kafka: " + method);
  }
}
