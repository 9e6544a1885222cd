import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.ClusterConfigProperty;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.junit.jupiter.api.extension.TestTemplateInvocationContextProvider;

/**
 * Runs Kafka's {@link ClusterTest}s, each against servers of its own, in place of Kafka's extension.
 *
 * <p>JUnit finds this class as a service. Kafka's own extension must be excluded from that search.
 */
public final class BearlakeTests implements TestTemplateInvocationContextProvider {
  @Override
  public boolean supportsTestTemplate(ExtensionContext context) {
    return context.getRequiredTestMethod().isAnnotationPresent(ClusterTest.class);
  }

  @Override
  public Stream<TestTemplateInvocationContext> provideTestTemplateInvocationContexts(ExtensionContext context) {
    Method method = context.getRequiredTestMethod();
    BearlakeCluster cluster = new BearlakeCluster(config(context.getRequiredTestClass(), method));
    String name = context.getRequiredTestClass().getSimpleName() + "." + method.getName();
    return Stream.of(new Invocation(name, cluster));
  }

  /** What the annotations of the class and of the method ask for; the method's properties win, as with Kafka's extension. */
  private static ClusterConfig config(Class<?> tests, Method method) {
    ClusterTest wanted = method.getAnnotation(ClusterTest.class);
    Map<String, String> properties = new HashMap<>();
    int count = wanted.brokers();
    ClusterTestDefaults defaults = tests.getAnnotation(ClusterTestDefaults.class);
    if (defaults != null) {
      add(properties, defaults.serverProperties(), tests);
      count = count == 0 ? defaults.brokers() : count;
    }
    add(properties, wanted.serverProperties(), method);
    return ClusterConfig.defaultBuilder()
        .setBrokers(Math.max(count, 1))
        .setBrokerSecurityProtocol(wanted.brokerSecurityProtocol())
        .setBrokerListenerName(ListenerName.normalised(wanted.brokerListener()))
        .setServerProperties(properties)
        .build();
  }

  private static void add(Map<String, String> properties, ClusterConfigProperty[] added, AnnotatedElement place) {
    if (Arrays.stream(added).anyMatch(property -> property.id() != -1)) {
      throw new IllegalArgumentException(place + " has properties of single brokers");
    }
    Arrays.stream(added).forEach(property -> properties.put(property.key(), property.value()));
  }

  /** One run of one test: its servers start before the test's own preparation, and end after the test. */
  private record Invocation(String name, BearlakeCluster cluster) implements TestTemplateInvocationContext {
    @Override
    public String getDisplayName(int index) {
      return name;
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
      return List.of(
          new Parameter(cluster),
          (BeforeEachCallback) context -> cluster.start(name),
          (AfterEachCallback) context -> cluster.end());
    }
  }

  /** Gives constructors and methods of tests their cluster. */
  private record Parameter(BearlakeCluster cluster) implements ParameterResolver {
    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
      return parameter.getParameter().getType() == ClusterInstance.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
      return cluster;
    }
  }
}
