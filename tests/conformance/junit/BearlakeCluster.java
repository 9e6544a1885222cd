import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.jose4j.lang.JoseException;
import org.objenesis.ObjenesisStd;
import org.opentest4j.TestAbortedException;
import scala.Some;

/**
 * Servers of Bearlake on one metadata store, in place of the brokers that a test of Kafka asks for.
 *
 * <p>A test that reaches for the insides of a broker is aborted, except for the authorizer, whose rules go through Kafka's API.
 */
final class BearlakeCluster implements ClusterInstance {
  private static final int TIMEOUT_S = 30;
  private static final int POLL_INTERVAL_MS = 50;
  private static final int ITERATION_COUNT = 4096;

  /** The users of Kafka's harness who log in by PLAIN. */
  private static final Map<String, String> USERS =
      Map.of(
          JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
          JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD);

  private final ClusterConfig config;
  private final List<BearlakeServer> servers = new ArrayList<>();
  private Admin harness;
  private Map<String, Object> login = Map.of();

  BearlakeCluster(ClusterConfig config) {
    this.config = config;
  }

  /** Starts the servers and creates the users. `name` names their folder and their logs. */
  void start(String name) throws Exception {
    Path folder = Files.createDirectories(Path.of(System.getProperty("bearlake.folder"), name));
    Tokens tokens = new Tokens(folder);
    ServerSettings settings = new ServerSettings(config);
    Map<String, Object> document = settings.document(tokens.keysFile().toString(), folder.toString());
    for (int number = 0; number < config.numBrokers(); number++) {
      Path log = Path.of(System.getProperty("bearlake.logs"), name + "-" + number + ".log");
      servers.add(new BearlakeServer(document, folder.resolve("server-" + number), log));
    }
    harness = harness(tokens);
    KafkaPrincipal client = settings.clientPrincipal();
    login = client.equals(KafkaPrincipal.ANONYMOUS) ? Map.of() : tokens.clientSettings(client);
    var users = USERS.entrySet().stream().map(user -> credential(user.getKey(), user.getValue())).toList();
    harness.alterUserScramCredentials(List.copyOf(users)).all().get(TIMEOUT_S, TimeUnit.SECONDS);
    waitForReadyBrokers();
    createOffsetsTopic();
  }

  /**
   * Creates the topic of offsets, if the test says how many partitions it has: such tests ask who leads it. Bearlake uses
   * no such topic, and does not create it on demand.
   */
  private void createOffsetsTopic() throws Exception {
    String count = config.serverProperties().get("offsets.topic.num.partitions");
    if (count != null) {
      var topic = new NewTopic(Topic.GROUP_METADATA_TOPIC_NAME, Optional.of(Integer.valueOf(count)), Optional.empty());
      harness.createTopics(List.of(topic)).all().get(TIMEOUT_S, TimeUnit.SECONDS);
    }
  }

  private Admin harness(Tokens tokens) throws IOException, JoseException {
    Map<String, Object> properties = new HashMap<>(tokens.clientSettings(ServerSettings.HARNESS));
    properties.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, addresses(BearlakeServer::harness));
    return Admin.create(properties);
  }

  private String addresses(Function<BearlakeServer, String> address) {
    return servers.stream().map(address).collect(Collectors.joining(","));
  }

  private static UserScramCredentialUpsertion credential(String user, String password) {
    var hash = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATION_COUNT);
    return new UserScramCredentialUpsertion(user, hash, password);
  }

  /**
   * Ends all servers that run.
   *
   * @throws IllegalStateException one of them did not end as it should, see {@link BearlakeServer#stop}
   */
  void end() throws InterruptedException {
    if (harness != null) {
      harness.close(Duration.ZERO);
    }
    IllegalStateException problem = null;
    for (BearlakeServer server : servers) {
      try {
        server.stop();
      } catch (IllegalStateException error) {
        problem = error;
      }
    }
    if (problem != null) {
      throw problem;
    }
  }

  @Override
  public void shutdownBroker(int id) {
    try {
      Node node = nodes().stream().filter(found -> found.id() == id).findFirst().orElseThrow();
      String address = node.host() + ":" + node.port();
      BearlakeServer server = servers.stream().filter(found -> found.harness().equals(address)).findFirst().orElseThrow();
      servers.remove(server);
      server.stop();
    } catch (InterruptedException error) {
      throw new IllegalStateException("interrupted while server " + id + " ends", error);
    }
  }

  /** Waits until the servers know each other. */
  @Override
  public void waitForReadyBrokers() throws InterruptedException {
    waitUntil(() -> nodes().size() == servers.size(), "the servers do not know each other");
  }

  private Collection<Node> nodes() throws InterruptedException {
    try {
      return harness.describeCluster().nodes().get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (ExecutionException | TimeoutException error) {
      throw new IllegalStateException("no server lists the servers", error);
    }
  }

  private static void waitUntil(Condition condition, String problem) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
    while (!condition.isTrue()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException(problem + " after " + TIMEOUT_S + " s");
      }
      Thread.sleep(POLL_INTERVAL_MS);
    }
  }

  private interface Condition {
    boolean isTrue() throws InterruptedException;
  }

  @Override
  public String bootstrapServers() {
    return addresses(BearlakeServer::bootstrap);
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
      return harness.describeCluster().clusterId().get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (InterruptedException | ExecutionException | TimeoutException error) {
      throw new IllegalStateException("the server does not say the cluster's id", error);
    }
  }

  @Override
  public Set<GroupProtocol> supportedGroupProtocols() {
    return Set.of(GroupProtocol.CLASSIC);
  }

  /** Kafka's clients, which log in if the test's principal builder gives them a name without a login. */
  @Override
  public Map<String, Object> setClientSaslConfig(Map<String, Object> properties) {
    Map<String, Object> changed = new HashMap<>(login);
    changed.putAll(ClusterInstance.super.setClientSaslConfig(properties));
    return changed;
  }

  /** Waits until the topic has its partitions. Bearlake creates no internal topics by itself; there is nothing to wait for. */
  @Override
  public void waitTopicCreation(String topic, int partitionCount) throws InterruptedException {
    if (!Topic.isInternal(topic)) {
      String problem = "no topic " + topic + " with " + partitionCount + " partitions";
      waitUntil(() -> partitionCount(topic) == partitionCount, problem);
    }
  }

  private int partitionCount(String topic) throws InterruptedException {
    try {
      var described = harness.describeTopics(List.of(topic)).allTopicNames().get(TIMEOUT_S, TimeUnit.SECONDS);
      return described.get(topic).partitions().size();
    } catch (ExecutionException | TimeoutException error) {
      if (error.getCause() instanceof UnknownTopicOrPartitionException) {
        return 0;
      }
      throw new IllegalStateException("the server does not describe " + topic, error);
    }
  }

  @Override
  public List<Authorizer> authorizers() {
    return List.of(new RulesByAdmin(harness));
  }

  /** One controller, made without its constructor: it has an authorizer and nothing else. */
  @Override
  public Map<Integer, ControllerServer> controllers() {
    ControllerServer controller = new ObjenesisStd().newInstance(ControllerServer.class);
    Authorizer authorizer = new RulesByAdmin(harness);
    controller.authorizerPlugin_$eq(new Some<>(Plugin.wrapInstance(authorizer, null, "authorizer.class.name")));
    return Map.of(0, controller);
  }

  @Override
  public Set<Integer> controllerIds() {
    return Set.of(0);
  }

  @Override
  public boolean started() {
    return !servers.isEmpty();
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
  public Map<Integer, KafkaBroker> brokers() {
    throw inside("brokers");
  }

  @Override
  public void startBroker(int id) {
    throw inside("startBroker");
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
