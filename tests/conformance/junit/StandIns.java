import java.util.Map;
import java.util.function.Function;
import javassist.util.proxy.ProxyFactory;
import javassist.util.proxy.ProxyObject;
import org.objenesis.ObjenesisStd;
import org.opentest4j.TestAbortedException;

/** Objects in place of parts of a broker. Each answers the methods that it is given; a test that asks for more is aborted. */
final class StandIns {
  private StandIns() {}

  /**
   * An object of a subclass of `type`, or of a class that implements it, made without its constructors.
   *
   * @param answers by the names of methods, what they return for their arguments
   */
  static <T> T of(Class<T> type, Map<String, Function<Object[], Object>> answers) {
    ProxyFactory factory = new ProxyFactory();
    if (type.isInterface()) {
      factory.setInterfaces(new Class<?>[] {type});
    } else {
      factory.setSuperclass(type);
    }
    Object made = new ObjenesisStd().newInstance(factory.createClass());
    ((ProxyObject) made)
        .setHandler(
            (self, method, original, arguments) -> {
              Function<Object[], Object> answer = answers.get(method.getName());
              return answer == null ? identity(self, type, method.getName(), arguments) : answer.apply(arguments);
            });
    return type.cast(made);
  }

  /** What every object answers: it is equal to itself alone. */
  private static Object identity(Object self, Class<?> type, String method, Object[] arguments) {
    return switch (method) {
      case "hashCode" -> System.identityHashCode(self);
      case "equals" -> self == arguments[0];
      case "toString" -> "stand-in for " + type.getSimpleName();
      default -> throw inside(method);
    };
  }

  /** Ends a test that needs what no server here has. */
  static TestAbortedException inside(String method) {
    return new TestAbortedException("needs the inside of a broker of Kafka: " + method);
  }
}
