import java.io.IOException;
import java.time.Duration;
import kafka.server.BrokerServer;
import org.apache.kafka.metadata.BrokerState;
import org.objenesis.ObjenesisStd;

/** A server where a test's type is that of Kafka's broker: it starts, ends, and says which of both it did last. Nothing else works. */
final class StoppableBroker extends BrokerServer {
  private BearlakeServer server;

  /** Is never called: {@link #of} makes a broker without Kafka's constructors. */
  private StoppableBroker() {
    super(null);
  }

  static BrokerServer of(BearlakeServer server) {
    StoppableBroker broker = new ObjenesisStd().newInstance(StoppableBroker.class);
    broker.server = server;
    return broker;
  }

  @Override
  public void startup() {
    try {
      server.restart();
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException("the server does not start", error);
    }
  }

  @Override
  public void shutdown(Duration timeout) {
    try {
      server.stop();
    } catch (InterruptedException error) {
      throw new IllegalStateException("interrupted", error);
    }
  }

  @Override
  public void shutdown() {
    shutdown(Duration.ZERO);
  }

  @Override
  public void awaitShutdown() {}

  @Override
  public boolean isShutdown() {
    return !server.isRunning();
  }

  @Override
  public BrokerState brokerState() {
    return server.isRunning() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
  }
}
