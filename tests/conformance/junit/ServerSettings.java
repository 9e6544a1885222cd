import java.net.InetAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.config.ReplicationConfigs;
import org.opentest4j.TestAbortedException;

/**
 * Translates the broker settings that a test asks for into settings of Bearlake.
 *
 * <p>A setting that is neither translated nor listed in {@link #IGNORED} aborts its test: the test would not test what it says.
 */
final class ServerSettings {
  /** The listener for this harness, which logs in as {@link #HARNESS}. */
  static final String HARNESS_LISTENER = "HARNESS";

  /** A super user, so that the harness may create users and access rules whatever the test's own rules are. */
  static final KafkaPrincipal HARNESS = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "harness");

  /**
   * Settings of what Bearlake does not have: internal topics, replicas and their leaders, local logs, connections among brokers.
   *
   * <p>`log.retention.ms` is about the compactor, which does not run here: nothing is deleted by age.
   */
  private static final Set<String> IGNORED =
      Set.of(
          "auto.leader.rebalance.enable",
          "broker.heartbeat.interval.ms",
          "broker.session.timeout.ms",
          "controlled.shutdown.enable",
          "default.replication.factor",
          "file.delete.delay.ms",
          "log.cleaner.dedupe.buffer.size",
          "log.initial.task.delay.ms",
          "log.retention.ms",
          "log.segment.delete.delay.ms",
          "log.unclean.leader.election.enable",
          "offsets.topic.num.partitions",
          "offsets.topic.replication.factor",
          "replica.fetch.max.bytes",
          ReplicationConfigs.REPLICA_FETCH_RESPONSE_MAX_BYTES_DOC, // a test of Kafka 4.3.1 takes it for the name
          "sasl.mechanism.inter.broker.protocol",
          "share.coordinator.state.topic.min.isr",
          "share.coordinator.state.topic.num.partitions",
          "share.coordinator.state.topic.replication.factor",
          "transaction.state.log.min.isr",
          "transaction.state.log.num.partitions",
          "transaction.state.log.replication.factor",
          "unclean.leader.election.enable",
          "unclean.leader.election.interval.ms");

  /** Kafka's settings of whole numbers, and the paths of ours. */
  private static final Map<String, String> NUMBERS =
      Map.ofEntries(
          Map.entry("group.consumer.assignment.interval.ms", "streams.groups.consumer.assignment_interval_ms"),
          Map.entry("group.consumer.heartbeat.interval.ms", "streams.groups.consumer.heartbeat_interval_ms"),
          Map.entry("group.consumer.max.size", "streams.groups.consumer.size_max"),
          Map.entry("group.consumer.min.heartbeat.interval.ms", "streams.groups.consumer.heartbeat_interval_min_ms"),
          Map.entry("group.initial.rebalance.delay.ms", "streams.groups.initial_rebalance_delay_ms"),
          Map.entry("group.max.session.timeout.ms", "streams.groups.session_timeout_max_ms"),
          Map.entry("group.max.size", "streams.groups.size_max"),
          Map.entry("group.min.session.timeout.ms", "streams.groups.session_timeout_min_ms"),
          Map.entry("group.share.delivery.count.limit", "streams.groups.share.delivery_count_limit"),
          Map.entry("group.share.max.partition.max.record.locks", "streams.groups.share.partition_record_locks_max"),
          Map.entry("group.share.max.share.sessions", "streams.groups.share.session_count_max"),
          Map.entry("group.share.max.size", "streams.groups.share.size_max"),
          Map.entry("group.share.min.record.lock.duration.ms", "streams.groups.share.record_lock_duration_min_ms"),
          Map.entry("group.share.partition.max.record.locks", "streams.groups.share.partition_record_locks"),
          Map.entry("group.share.record.lock.duration.ms", "streams.groups.share.record_lock_duration_ms"),
          Map.entry("group.streams.assignment.interval.ms", "streams.groups.streams.assignment_interval_ms"),
          Map.entry("group.streams.heartbeat.interval.ms", "streams.groups.streams.heartbeat_interval_ms"),
          Map.entry("group.streams.initial.rebalance.delay.ms", "streams.groups.streams.initial_rebalance_delay_ms"),
          Map.entry("group.streams.max.size", "streams.groups.streams.size_max"),
          Map.entry("group.streams.max.standby.replicas", "streams.groups.streams.standby_replicas_max"),
          Map.entry("group.streams.min.heartbeat.interval.ms", "streams.groups.streams.heartbeat_interval_min_ms"),
          Map.entry("group.streams.min.session.timeout.ms", "streams.groups.streams.session_timeout_min_ms"),
          Map.entry("group.streams.num.standby.replicas", "streams.groups.streams.num_standby_replicas"),
          Map.entry("group.streams.session.timeout.ms", "streams.groups.streams.session_timeout_ms"),
          Map.entry("num.partitions", "kafka.default_partition_count"),
          Map.entry("producer.id.expiration.check.interval.ms", "streams.upkeep.producer_pause_ms"),
          Map.entry("producer.id.expiration.ms", "streams.upkeep.producer_idle_ms"),
          Map.entry(
              "transaction.abort.timed.out.transaction.cleanup.interval.ms", "streams.transactions.expire_pause_ms"),
          Map.entry(
              "transaction.remove.expired.transaction.cleanup.interval.ms", "streams.upkeep.producer_pause_ms"),
          Map.entry("transaction.max.timeout.ms", "streams.transactions.timeout_max_ms"),
          Map.entry("transactional.id.expiration.ms", "streams.transactions.idle_ms"));

  private static final int FAILURES_MAX = 1_000_000;
  private static final String AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

  private final ClusterConfig config;
  private final Map<String, String> left;

  ServerSettings(ClusterConfig config) {
    this.config = config;
    this.left = new HashMap<>(config.serverProperties());
    if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) { // as Kafka's harness does
      left.putIfAbsent("authorizer.class.name", AUTHORIZER);
      left.putIfAbsent("super.users", KafkaPrincipal.USER_TYPE + ":" + JaasUtils.KAFKA_PLAIN_ADMIN);
    }
    left.remove("message.max.bytes"); // see topicConfigs
    if (!config.perServerOverrideProperties().isEmpty()) {
      throw new TestAbortedException("no translation for settings of single brokers");
    }
  }

  /** Who the clients of the test's listener are without a login, as the test's principal builder says. */
  KafkaPrincipal clientPrincipal() throws ReflectiveOperationException {
    String builder = config.serverProperties().get("principal.builder.class");
    if (builder == null) {
      return KafkaPrincipal.ANONYMOUS;
    }
    Object built = Class.forName(builder).getDeclaredConstructor().newInstance();
    String listener = config.brokerListenerName().value();
    var context = new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), listener);
    return ((KafkaPrincipalBuilder) built).build(context);
  }

  /**
   * The settings file, as a tree of JSON.
   *
   * @param keysFile the public keys of {@link Tokens}
   * @param folder where the server keeps its data
   */
  Map<String, Object> document(String keysFile, String folder) throws ReflectiveOperationException {
    Map<String, Object> document = new HashMap<>();
    put(document, "metadata.url", "sqlite:///" + folder + "/metadata.db");
    put(document, "object_store.url", "file://" + folder + "/objects");
    put(document, "server.heartbeat_ms", 50L); // servers learn of others with their heartbeats; those of Kafka at once
    put(document, "listeners.kafka", clientListener());
    put(document, "listeners.kafka_more", List.of(harnessListener()));
    document.put("authentication", authentication(keysFile));
    document.put("access", access());
    NUMBERS.forEach((property, path) -> take(property).ifPresent(value -> put(document, path, Long.valueOf(value))));
    take("auto.create.topics.enable")
        .ifPresent(value -> put(document, "kafka.auto_create_streams", Boolean.valueOf(value)));
    left.remove("delete.topic.enable", "true"); // topics can always be deleted
    left.keySet().removeAll(IGNORED);
    if (!left.isEmpty()) {
      throw new TestAbortedException("no translation for settings of brokers: " + left);
    }
    return document;
  }

  /** What topics get that the harness creates. For Kafka these are settings of brokers. */
  Map<String, String> topicConfigs() {
    String bytesMax = config.serverProperties().get("message.max.bytes");
    return bytesMax == null ? Map.of() : Map.of("max.message.bytes", bytesMax);
  }

  private Optional<String> take(String property) {
    return Optional.ofNullable(left.remove(property));
  }

  /** Puts a value into a tree, at a path of names with dots between them. */
  static void put(Map<String, Object> tree, String path, Object value) {
    String[] names = path.split("\\.");
    Map<String, Object> branch = tree;
    for (String name : Arrays.copyOf(names, names.length - 1)) {
      @SuppressWarnings("unchecked") // all inner nodes are made here
      Map<String, Object> next = (Map<String, Object>) branch.computeIfAbsent(name, key -> new HashMap<String, Object>());
      branch = next;
    }
    branch.put(names[names.length - 1], value);
  }

  private static Map<String, Object> harnessListener() {
    return Map.of("name", HARNESS_LISTENER, "port", 0, "mechanisms", List.of("OAUTHBEARER"));
  }

  private Map<String, Object> clientListener() throws ReflectiveOperationException {
    String mechanisms = left.remove("sasl.enabled.mechanisms");
    left.remove("principal.builder.class");
    if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
      List<String> names = mechanisms == null ? List.of("PLAIN") : List.of(mechanisms.split(","));
      return Map.of("port", 0, "mechanisms", names);
    }
    if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
      throw new TestAbortedException("no translation for listeners of " + config.brokerSecurityProtocol());
    }
    boolean isAnonymous = clientPrincipal().equals(KafkaPrincipal.ANONYMOUS);
    return isAnonymous
        ? Map.of("port", 0, "anonymous", true)
        : Map.of("port", 0, "mechanisms", List.of("OAUTHBEARER"));
  }

  private Map<String, Object> authentication(String keysFile) {
    Map<String, Object> failures = Map.of("per_address_max", FAILURES_MAX, "per_user_max", FAILURES_MAX);
    Map<String, Object> token = Map.of("issuer", Tokens.ISSUER, "audience", Tokens.AUDIENCE, "keys_file", keysFile);
    return Map.of("failures", failures, "token", token);
  }

  private Map<String, Object> access() {
    Set<String> superUsers = new LinkedHashSet<>(Set.of(HARNESS.toString()));
    String named = left.remove("super.users");
    if (named != null) {
      superUsers.addAll(Arrays.asList(named.split(";")));
    }
    String authorizer = left.remove("authorizer.class.name");
    if (authorizer != null && !authorizer.equals(AUTHORIZER)) {
      throw new TestAbortedException("no translation for the authorizer " + authorizer);
    }
    boolean isOpen = Boolean.parseBoolean(left.remove("allow.everyone.if.no.acl.found"));
    return Map.of("super_users", superUsers, "allow_if_no_rule", authorizer == null || isOpen);
  }
}
