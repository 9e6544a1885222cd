import java.io.IOException;
import java.util.Map;
import kafka.server.BrokerServer;
import org.apache.kafka.metadata.BrokerState;

/** A server where a test's type is that of Kafka's broker: it starts, ends, and says which of both it did last. Nothing else works. */
final class StoppableBroker {
  private StoppableBroker() {}

  static BrokerServer of(BearlakeServer server) {
    return StandIns.of(
        BrokerServer.class,
        Map.of(
            "startup", arguments -> started(server),
            "shutdown", arguments -> stopped(server),
            "awaitShutdown", arguments -> null, // the server has ended when `shutdown` returns
            "isShutdown", arguments -> !server.isRunning(),
            "brokerState", arguments -> server.isRunning() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING));
  }

  private static Void started(BearlakeServer server) {
    try {
      server.restart();
      return null;
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException("the server does not start", error);
    }
  }

  private static Void stopped(BearlakeServer server) {
    try {
      server.stop();
      return null;
    } catch (InterruptedException error) {
      throw new IllegalStateException("interrupted", error);
    }
  }
}
