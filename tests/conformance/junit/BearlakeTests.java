import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.ClusterConfigProperty;
import org.apache.kafka.common.test.api.ClusterFeature;
import org.apache.kafka.common.test.api.ClusterTemplate;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.common.test.api.ClusterTests;
import org.apache.kafka.server.common.Feature;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.junit.jupiter.api.extension.TestTemplateInvocationContextProvider;
import org.opentest4j.TestAbortedException;

/**
 * Runs Kafka's tests of clusters, each against servers on which nothing is left of other tests, in place of Kafka's extension.
 *
 * <p>JUnit finds this class as a service. Kafka's own extension must be excluded from that search.
 */
public final class BearlakeTests implements TestTemplateInvocationContextProvider, AfterAllCallback {
  private final KeptCluster kept = new KeptCluster();

  @Override
  public boolean supportsTestTemplate(ExtensionContext context) {
    Method method = context.getRequiredTestMethod();
    return Stream.of(ClusterTest.class, ClusterTests.class, ClusterTemplate.class).anyMatch(method::isAnnotationPresent);
  }

  @Override
  public Stream<TestTemplateInvocationContext> provideTestTemplateInvocationContexts(ExtensionContext context) {
    Method method = context.getRequiredTestMethod();
    String name = context.getRequiredTestClass().getSimpleName() + "." + method.getName();
    List<ClusterConfig> configs = configs(context.getRequiredTestClass(), method);
    return IntStream.range(0, configs.size())
        .mapToObj(
            number -> {
              String suffix = configs.size() > 1 ? "-" + (number + 1) : "";
              return new Invocation(name + suffix, new BearlakeCluster(configs.get(number), kept));
            });
  }

  @Override
  public void afterAll(ExtensionContext context) throws InterruptedException {
    kept.end();
  }

  private static List<ClusterConfig> configs(Class<?> tests, Method method) {
    ClusterTemplate template = method.getAnnotation(ClusterTemplate.class);
    if (template != null) {
      return generated(tests, template.value());
    }
    ClusterTests several = method.getAnnotation(ClusterTests.class);
    ClusterTest[] wanted = several == null ? new ClusterTest[] {method.getAnnotation(ClusterTest.class)} : several.value();
    return Arrays.stream(wanted).map(one -> config(tests, method, one)).toList();
  }

  /** What the static method `generator` of the class returns. */
  @SuppressWarnings("unchecked") // the type of the generators of all templates
  private static List<ClusterConfig> generated(Class<?> tests, String generator) {
    try {
      Method method = tests.getDeclaredMethod(generator);
      method.setAccessible(true);
      return (List<ClusterConfig>) method.invoke(null);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(tests + " has no clusters " + generator, error);
    }
  }

  /** What the annotations of the class and of the method ask for; the method's properties win, as with Kafka's extension. */
  private static ClusterConfig config(Class<?> tests, Method method, ClusterTest wanted) {
    Map<String, String> properties = new HashMap<>();
    Map<Integer, Map<String, String>> single = new HashMap<>();
    int count = wanted.brokers();
    ClusterTestDefaults defaults = tests.getAnnotation(ClusterTestDefaults.class);
    if (defaults != null) {
      add(properties, single, defaults.serverProperties());
      count = count == 0 ? defaults.brokers() : count;
    }
    add(properties, single, wanted.serverProperties());
    Map<Feature, Short> features =
        Arrays.stream(wanted.features()).collect(Collectors.toMap(ClusterFeature::feature, ClusterFeature::version));
    return ClusterConfig.defaultBuilder()
        .setBrokers(Math.max(count, 1))
        .setBrokerSecurityProtocol(wanted.brokerSecurityProtocol())
        .setBrokerListenerName(ListenerName.normalised(wanted.brokerListener()))
        .setServerProperties(properties)
        .setPerServerProperties(single)
        .setFeatures(features)
        .build();
  }

  /** Adds properties of all brokers and of single brokers. */
  private static void add(
      Map<String, String> properties, Map<Integer, Map<String, String>> single, ClusterConfigProperty[] added) {
    for (ClusterConfigProperty property : added) {
      var place = property.id() == -1 ? properties : single.computeIfAbsent(property.id(), id -> new HashMap<>());
      place.put(property.key(), property.value());
    }
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
          (BeforeEachCallback) context -> cluster.begin(name),
          (AfterEachCallback) context -> cluster.end(hasFailed(context)));
    }

    private static boolean hasFailed(ExtensionContext context) {
      return context.getExecutionException().filter(error -> !(error instanceof TestAbortedException)).isPresent();
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
