import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies a topic to another one, exactly once, and fails on purpose after the first checkpoint. Arguments: address, source, target. */
public final class CopyJob {
    private static final AtomicBoolean HAS_FAILED = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Configuration settings = new Configuration();
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 3);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(200));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment.enableCheckpointing(500);
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(address)
                        .setTopics(arguments[1])
                        .setGroupId("flink-copy")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(address)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix("flink-copy")
                        .setProperty("transaction.timeout.ms", "60000")
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.builder()
                                        .setTopic(arguments[2])
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .map(new FailOnce())
                .sinkTo(sink);
        environment.execute("copy");
        System.out.println(HAS_FAILED.get() ? "COPIED AFTER A FAILURE" : "COPIED WITHOUT A FAILURE");
    }

    /** Passes records on slowly; throws once, at a record after a checkpoint. */
    public static final class FailOnce extends RichMapFunction<String, String> implements CheckpointListener {
        private transient volatile boolean isCheckpointed;

        @Override
        public String map(String value) throws Exception {
            Thread.sleep(1);
            if (isCheckpointed && HAS_FAILED.compareAndSet(false, true)) {
                throw new IllegalStateException("on purpose");
            }
            return value;
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            isCheckpointed = true;
        }
    }
}
