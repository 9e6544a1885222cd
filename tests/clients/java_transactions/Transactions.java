import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of the Java client, from beginning to end, with what each step shows on a line of standard output.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP. The topic is empty and has two partitions.
 */
public class Transactions {
    static String bootstrap;
    static String topic;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        String group = arguments[2];
        try (KafkaProducer<String, String> copier = producer("copier")) {
            copier.initTransactions();
            copier.beginTransaction();
            send(copier, "a0", "a1");
            copier.flush();
            show("open", read("read_committed"));
            copier.commitTransaction();
            show("committed", read("read_committed"));
            copier.beginTransaction();
            send(copier, "b0", "b1");
            copier.flush();
            copier.abortTransaction();
            show("aborted", read("read_committed"));
            show("everything", read("read_uncommitted"));
            copyOffsets(copier, group);
            administer(copier);
        }
    }

    static void copyOffsets(KafkaProducer<String, String> copier, String group) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer("read_committed", group)) {
            consumer.subscribe(List.of(topic));
            List<String> found = new ArrayList<>();
            long end = System.currentTimeMillis() + 60_000;
            while (found.size() < 2 && System.currentTimeMillis() < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> found.add(record.value()));
            }
            Collections.sort(found);
            copier.beginTransaction();
            for (String value : found) {
                send(copier, "copy of " + value);
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = consumer.assignment().stream()
                    .collect(Collectors.toMap(key -> key, key -> new OffsetAndMetadata(consumer.position(key))));
            copier.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            copier.commitTransaction();
            show("copied", found);
            List<String> committed = new ArrayList<>();
            consumer.committed(consumer.assignment()).forEach((key, value) ->
                    committed.add(key.partition() + (value == null ? " none" : value.offset() > 0 ? " some" : " 0")));
            Collections.sort(committed);
            show("offsets", committed);
        }
    }

    static void administer(KafkaProducer<String, String> copier) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            copier.beginTransaction();
            send(copier, "c0");
            copier.flush();
            TransactionDescription open = admin.describeTransactions(List.of("copier")).description("copier").get();
            show("described", List.of(open.state().toString(), open.topicPartitions().toString()));
            show("listed", admin.listTransactions().all().get().stream()
                    .map(item -> item.transactionalId() + " " + item.state()).collect(Collectors.toList()));
            TopicPartition partition = new TopicPartition(topic, 0);
            ProducerState state = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers().stream()
                    .filter(item -> item.currentTransactionStartOffset().isPresent()).findFirst().get();
            admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(), (short) state.producerEpoch(),
                    state.coordinatorEpoch().orElse(-1))).all().get();
            show("ended by an administrator", List.of(
                    admin.describeTransactions(List.of("copier")).description("copier").get().state().toString()));
            show("then", List.of(outcome(copier)));
            try (KafkaProducer<String, String> next = producer("copier")) {
                next.initTransactions();
                next.beginTransaction();
                send(next, "d0");
                next.flush(); // else the record may be the first request that meets the fence: InvalidProducerEpochException
                admin.fenceProducers(List.of("copier")).all().get();
                show("fenced", List.of(outcome(next)));
            }
            try (KafkaProducer<String, String> last = producer("copier")) {
                last.initTransactions();
                last.beginTransaction();
                send(last, "e0");
                last.commitTransaction();
            }
            show("at the end", read("read_committed"));
        }
    }

    static String outcome(KafkaProducer<String, String> producer) {
        try {
            producer.commitTransaction();
            return "committed";
        } catch (KafkaException error) {
            return error.getClass().getSimpleName();
        }
    }

    static void send(KafkaProducer<String, String> producer, String... values) {
        for (int at = 0; at < values.length; at++) {
            producer.send(new ProducerRecord<>(topic, at, null, values[at]));
        }
    }

    static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("max.block.ms", "60000");
        settings.put("delivery.timeout.ms", "60000");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String isolation, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> read(String isolation) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation, null)) {
            List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.currentTimeMillis() + 60_000;
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())
                    && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(record.value());
                }
            }
        }
        Collections.sort(found);
        return found;
    }

    static void show(String step, List<String> lines) {
        System.out.println(step + ": " + String.join(", ", lines));
    }
}
