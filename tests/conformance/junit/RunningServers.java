import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.jose4j.lang.JoseException;

/** The servers that a test asks for, on one metadata store, with their users and an administrator. */
final class RunningServers {
  static final int TIMEOUT_S = 30;
  private static final int POLL_INTERVAL_MS = 50;
  private static final int ITERATION_COUNT = 4096;

  /** The users of Kafka's harness who log in by PLAIN. */
  private static final Map<String, String> USERS =
      Map.of(
          JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
          JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD);

  private final List<BearlakeServer> servers = new ArrayList<>();

  /** What stands for the brokers, by node id, also for those that do not run. Kafka's harness counts from 0: the first one. */
  final Map<Integer, KafkaBroker> brokers =
      new TreeMap<>() {
        @Override
        public KafkaBroker get(Object id) {
          return Integer.valueOf(0).equals(id) && !containsKey(id) ? firstEntry().getValue() : super.get(id);
        }
      };

  /** Settings of clients that log in because the test's principal builder gives them a name without a login. */
  final Map<String, Object> login;

  /** What topics get that the harness creates; see {@link ServerSettings#topicConfigs}. */
  final Map<String, String> topicConfigs;

  Admin harness;

  /** Starts the servers and creates the users. `name` names their folder and their logs. A caller whose start fails ends them. */
  RunningServers(ClusterConfig config, String name) throws Exception {
    Path folder = Files.createDirectories(Path.of(System.getProperty("bearlake.folder"), name));
    Tokens tokens = new Tokens(folder);
    ServerSettings settings = new ServerSettings(config);
    topicConfigs = settings.topicConfigs();
    KafkaPrincipal client = settings.clientPrincipal();
    login = client.equals(KafkaPrincipal.ANONYMOUS) ? Map.of() : tokens.clientSettings(client);
    Map<String, Object> document = settings.document(tokens.keysFile().toString(), folder.toString());
    try {
      start(config.numBrokers(), document, folder, name);
      awaitAcquaintance();
      harness = harness(tokens);
      name(folder);
      var users = USERS.entrySet().stream().map(user -> credential(user.getKey(), user.getValue())).toList();
      harness.alterUserScramCredentials(List.copyOf(users)).all().get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (Exception | Error error) {
      servers.forEach(BearlakeServer::kill);
      throw error;
    }
  }

  private void start(int count, Map<String, Object> document, Path folder, String name) throws Exception {
    for (int number = 0; number < count; number++) {
      Path log = Path.of(System.getProperty("bearlake.logs"), name + "-" + number + ".log");
      ServerSettings.put(document, "server.name", "server-" + number);
      servers.add(new BearlakeServer(document, folder.resolve("server-" + number), log));
    }
    for (BearlakeServer server : servers) {
      server.awaitReady();
    }
  }

  /**
   * Waits until each server that runs knows all that run, and no others.
   *
   * <p>A client may ask any of them. If the client learns of one server only, and a test stops that server, then the client forgets its
   * topics and begins again with its bootstrap servers. The leader of a classic group then joins again.
   */
  void awaitAcquaintance() throws InterruptedException {
    waitUntil(this::areAcquainted, "the servers do not know each other");
  }

  private boolean areAcquainted() throws InterruptedException {
    List<BearlakeServer> running = servers.stream().filter(BearlakeServer::isRunning).toList();
    Set<String> all = running.stream().map(BearlakeServer::bootstrap).collect(Collectors.toSet());
    for (BearlakeServer server : running) {
      if (!server.known().equals(all)) {
        return false;
      }
    }
    return true;
  }

  private Admin harness(Tokens tokens) throws IOException, JoseException {
    Map<String, Object> properties = new HashMap<>(tokens.clientSettings(ServerSettings.HARNESS));
    properties.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, addresses(BearlakeServer::harness));
    return Admin.create(properties);
  }

  private void name(Path folder) throws InterruptedException {
    for (Node node : nodes()) {
      String address = node.host() + ":" + node.port();
      BearlakeServer server =
          servers.stream().filter(found -> found.harness().equals(address)).findFirst().orElseThrow();
      brokers.put(node.id(), standIn(node.id(), server, folder));
    }
  }

  private KafkaBroker standIn(int id, BearlakeServer server, Path folder) {
    return BrokerStandIn.of(id, server, folder.resolve("logs-" + id), new BrokerParts(id, this));
  }

  private static UserScramCredentialUpsertion credential(String user, String password) {
    var hash = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATION_COUNT);
    return new UserScramCredentialUpsertion(user, hash, password);
  }

  /** The addresses for the test's clients. */
  String bootstrap() {
    return addresses(BearlakeServer::bootstrap);
  }

  private String addresses(Function<BearlakeServer, String> address) {
    return servers.stream().map(address).collect(Collectors.joining(","));
  }

  /** All servers, also those that do not run. */
  List<BearlakeServer> all() {
    return List.copyOf(servers);
  }

  /** The servers that the servers know. */
  Collection<Node> nodes() throws InterruptedException {
    return answer(harness.describeCluster().nodes());
  }

  /** The partitions of a topic; none if it does not exist. */
  List<TopicPartitionInfo> partitions(String topic) {
    try {
      return harness.describeTopics(List.of(topic)).allTopicNames().get(TIMEOUT_S, TimeUnit.SECONDS).get(topic).partitions();
    } catch (ExecutionException | TimeoutException | InterruptedException error) {
      if (error.getCause() instanceof UnknownTopicOrPartitionException) {
        return List.of();
      }
      throw new IllegalStateException("the servers do not describe " + topic, error);
    }
  }

  /** Where a partition ends. */
  long end(TopicPartition partition) {
    try {
      return answer(harness.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition)).offset();
    } catch (InterruptedException error) {
      throw new IllegalStateException("interrupted", error);
    }
  }

  /** Waits for an answer to the administrator. */
  static <T> T answer(KafkaFuture<T> future) throws InterruptedException {
    try {
      return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (ExecutionException | TimeoutException error) {
      throw new IllegalStateException("the servers do not answer the harness", error);
    }
  }

  static void waitUntil(Condition condition, String problem) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
    while (!condition.isTrue()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException(problem + " after " + TIMEOUT_S + " s");
      }
      Thread.sleep(POLL_INTERVAL_MS);
    }
  }

  interface Condition {
    boolean isTrue() throws InterruptedException;
  }

  /** Deletes topics and groups; returns whether the servers are then as new. A member that has not left keeps its group. */
  boolean wipe() throws InterruptedException {
    if (!servers.stream().allMatch(BearlakeServer::isAsStarted)) {
      return false;
    }
    try {
      answer(harness.deleteTopics(answer(harness.listTopics().names())).all());
      List<String> groups = answer(harness.listGroups().all()).stream().map(GroupListing::groupId).toList();
      answer(harness.deleteConsumerGroups(groups).all());
      wipeConfigs();
      return answer(harness.listTransactions().all()).isEmpty()
          && answer(harness.describeAcls(AclBindingFilter.ANY).values()).isEmpty();
    } catch (IllegalStateException error) {
      return false;
    }
  }

  /** Deletes the configs of all groups. */
  private void wipeConfigs() throws InterruptedException {
    var options = new ListConfigResourcesOptions();
    var groups = answer(harness.listConfigResources(Set.of(ConfigResource.Type.GROUP), options).all());
    Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
    answer(harness.describeConfigs(groups).all())
        .forEach(
            (group, config) ->
                changes.put(
                    group,
                    config.entries().stream()
                        .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG)
                        .map(entry -> new AlterConfigOp(entry, AlterConfigOp.OpType.DELETE))
                        .toList()));
    answer(harness.incrementalAlterConfigs(changes).all());
  }

  /**
   * Ends all servers that run.
   *
   * @throws IllegalStateException one of them did not end as it should, see {@link BearlakeServer#stop}
   */
  void end() throws InterruptedException {
    harness.close(Duration.ZERO);
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
}
