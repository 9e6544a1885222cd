import java.net.InetAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
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

  /** Settings of internal topics ({@link BearlakeCluster} creates one of them) and of connections among brokers. */
  private static final Set<String> IGNORED =
      Set.of(
          "offsets.topic.num.partitions",
          "offsets.topic.replication.factor",
          "sasl.mechanism.inter.broker.protocol");

  private static final Map<String, String> GROUPS =
      Map.of(
          "group.min.session.timeout.ms", "session_timeout_min_ms",
          "group.max.session.timeout.ms", "session_timeout_max_ms",
          "group.initial.rebalance.delay.ms", "initial_rebalance_delay_ms");

  private static final int FAILURES_MAX = 1_000_000;
  private static final String AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

  private final ClusterConfig config;
  private final Map<String, String> left;

  ServerSettings(ClusterConfig config) {
    this.config = config;
    this.left = new HashMap<>(config.serverProperties());
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
    Map<String, Object> harness = Map.of("name", HARNESS_LISTENER, "port", 0, "mechanisms", List.of("OAUTHBEARER"));
    Map<String, Object> document =
        Map.of(
            "metadata", Map.of("url", "sqlite:///" + folder + "/metadata.db"),
            "object_store", Map.of("url", "file://" + folder + "/objects"),
            "listeners", Map.of("kafka", clientListener(), "kafka_more", List.of(harness)),
            "authentication", authentication(keysFile),
            "access", access(),
            "streams", Map.of("groups", groups()));
    left.keySet().removeAll(IGNORED);
    if (!left.isEmpty()) {
      throw new TestAbortedException("no translation for settings of brokers: " + left);
    }
    return document;
  }

  private Map<String, Object> clientListener() throws ReflectiveOperationException {
    String mechanisms = left.remove("sasl.enabled.mechanisms");
    left.remove("principal.builder.class");
    if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
      return Map.of("mechanisms", mechanisms == null ? List.of("PLAIN") : List.of(mechanisms.split(",")));
    }
    if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
      throw new TestAbortedException("no translation for listeners of " + config.brokerSecurityProtocol());
    }
    boolean isAnonymous = clientPrincipal().equals(KafkaPrincipal.ANONYMOUS);
    return isAnonymous ? Map.of("anonymous", true) : Map.of("mechanisms", List.of("OAUTHBEARER"));
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

  private Map<String, Object> groups() {
    Map<String, Object> groups = new HashMap<>();
    GROUPS.forEach(
        (property, setting) -> {
          String value = left.remove(property);
          if (value != null) {
            groups.put(setting, Integer.valueOf(value));
          }
        });
    return groups;
  }
}
