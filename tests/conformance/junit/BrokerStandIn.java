import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Node;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.MetadataCache;

/**
 * A server in place of a broker of Kafka: it starts, ends, and has a port, a configuration and the parts of {@link BrokerParts}. It knows
 * that it is alive.
 *
 * <p>A test that reaches for more of the broker's inside is aborted.
 */
final class BrokerStandIn implements InvocationHandler {
  private final BearlakeServer server;
  private final BrokerParts parts;
  private final KafkaConfig config;

  private BrokerStandIn(int id, BearlakeServer server, Path folder, BrokerParts parts) {
    this.server = server;
    this.parts = parts;
    this.config =
        new KafkaConfig(
            Map.of(
                "process.roles", "broker",
                "node.id", String.valueOf(id),
                "listeners", "PLAINTEXT://" + server.bootstrap(),
                "controller.listener.names", "CONTROLLER",
                "controller.quorum.bootstrap.servers", server.bootstrap(),
                "log.dirs", folder.toString()));
  }

  /** The broker with the id `id`. `folder` takes the place of its log directory and may be empty. */
  static KafkaBroker of(int id, BearlakeServer server, Path folder, BrokerParts parts) {
    return proxy(KafkaBroker.class, new BrokerStandIn(id, server, folder, parts));
  }

  private static <T> T proxy(Class<T> type, InvocationHandler handler) {
    return type.cast(Proxy.newProxyInstance(BrokerStandIn.class.getClassLoader(), new Class<?>[] {type}, handler));
  }

  /** What the broker knows of its cluster: itself, while it runs. */
  private Object known(Method asked) {
    if (!asked.getName().equals("getAliveBrokerNodes")) {
      throw StandIns.inside(asked.getName());
    }
    return server.isRunning() ? List.of(new Node(config.nodeId(), "127.0.0.1", BearlakeServer.port(server.bootstrap()))) : List.of();
  }

  @Override
  public Object invoke(Object broker, Method method, Object[] arguments) throws IOException, InterruptedException {
    switch (method.getName()) {
      case "boundPort":
        return BearlakeServer.port(server.bootstrap());
      case "config":
        return config;
      case "metadataCache":
        return proxy(MetadataCache.class, (cache, asked, values) -> known(asked));
      case "replicaManager":
        return parts.replicas();
      case "logManager":
        return parts.logs();
      case "groupCoordinator":
        return parts.groups();
      case "brokerState":
        return server.isRunning() ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN; // of a broker that has ended, Kafka says that it ends
      case "isShutdown":
        return !server.isRunning();
      case "shutdown":
        server.stop();
        return null;
      case "awaitShutdown":
        return null; // the server has ended when `shutdown` returns
      case "startup":
        server.restart();
        return null;
      default:
        throw StandIns.inside(method.getName());
    }
  }
}
