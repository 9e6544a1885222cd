import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;

/**
 * Features of Pulsar as its own Java client knows them, against a server: `PulsarSteps pulsar://HOST:PORT RUN [STEP…]`.
 *
 * <p>Says a line per step: `ok STEP`, or `failed STEP REASON`. Topics are named after RUN. `PulsarSteps list` names the steps.
 */
public class PulsarSteps {
    interface Step {
        void run() throws Exception;
    }

    static final int WAIT_MS = 20_000;
    static final int STEP_TIMEOUT_S = 60;
    static final int QUIET_MS = 500;

    static PulsarClient client;
    static String url;
    static String run;

    public static void main(String[] words) throws Exception {
        Map<String, Step> steps = steps();
        if (words[0].equals("list")) {
            steps.keySet().forEach(System.out::println);
            return;
        }
        url = words[0];
        run = words[1];
        client = PulsarClient.builder().serviceUrl(url).operationTimeout(WAIT_MS, TimeUnit.MILLISECONDS).build();
        List<String> wanted = words.length > 2 ? List.of(words).subList(2, words.length) : List.copyOf(steps.keySet());
        for (String name : wanted) {
            System.out.println(outcome(name, steps.get(name)));
        }
        client.close();
        System.exit(0);
    }

    static Map<String, Step> steps() {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("exclusive", PulsarSteps::exclusive);
        steps.put("shared", PulsarSteps::shared);
        steps.put("key-shared", PulsarSteps::keyShared);
        steps.put("key-shared-sticky", PulsarSteps::keySharedSticky);
        steps.put("failover", PulsarSteps::failover);
        steps.put("seek", PulsarSteps::seek);
        steps.put("reader", PulsarSteps::reader);
        steps.put("schema", PulsarSteps::schema);
        steps.put("chunks", PulsarSteps::chunks);
        steps.put("batch-index-acknowledgement", PulsarSteps::batchIndexAcknowledgement);
        steps.put("dead-letters", PulsarSteps::deadLetters);
        steps.put("delayed", PulsarSteps::delayed);
        steps.put("exclusive-producer", PulsarSteps::exclusiveProducer);
        steps.put("deduplication", PulsarSteps::deduplication);
        steps.put("table-view", PulsarSteps::tableView);
        steps.put("pattern", PulsarSteps::pattern);
        steps.put("partitioned", PulsarSteps::partitioned);
        return steps;
    }

    static String outcome(String name, Step step) {
        try {
            CompletableFuture<Void> done = new CompletableFuture<>();
            Thread thread = new Thread(() -> {
                try {
                    step.run();
                    done.complete(null);
                } catch (Throwable error) {
                    done.completeExceptionally(error);
                }
            });
            thread.setDaemon(true);
            thread.start();
            done.get(STEP_TIMEOUT_S, TimeUnit.SECONDS);
            return "ok " + name;
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            cause.printStackTrace();
            return "failed " + name + " " + cause.toString().lines().findFirst().orElse("");
        }
    }

    // -- what the steps share ------------------------------------------------------------------------------------

    static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", got " + found);
    }

    static String topic(String name) {
        return "persistent://public/default/" + run + "-" + name;
    }

    /** Messages whose value and property `number` count from 0, in batches of ten or alone. */
    static void fill(String topic, int count, boolean isBatched) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(isBatched)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS).batchingMaxMessages(10).create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(producer.newMessage().key("key-" + number % 7).property("number", "" + number)
                        .value(("" + number).getBytes()).sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> each : sent) {
                each.get(WAIT_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    static ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static Message<byte[]> next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(WAIT_MS, TimeUnit.MILLISECONDS);
        check(message != null, "nothing received");
        return message;
    }

    static int number(Message<byte[]> message) {
        return Integer.parseInt(new String(message.getData()));
    }

    static void hasNoMore(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(QUIET_MS, TimeUnit.MILLISECONDS);
        check(message == null, "one more received");
    }

    interface Take {
        void take(Consumer<byte[]> consumer, Message<byte[]> message) throws Exception;
    }

    /** Give what comes to `consumers` to `take` until it has seen `count` different messages. */
    static void takeAll(List<Consumer<byte[]>> consumers, int count, Take take) throws Exception {
        Set<Integer> seen = new HashSet<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (seen.size() < count) {
            check(System.currentTimeMillis() < end, "got only " + seen);
            for (Consumer<byte[]> each : consumers) {
                Message<byte[]> message = each.receive(20, TimeUnit.MILLISECONDS);
                if (message != null) {
                    take.take(each, message);
                    seen.add(number(message));
                }
            }
        }
    }

    // -- subscriptions -------------------------------------------------------------------------------------------

    static void exclusive() throws Exception {
        String topic = topic("exclusive");
        fill(topic, 25, true);
        Consumer<byte[]> first = consumer(topic, SubscriptionType.Exclusive).subscribe();
        MessageId last = null;
        for (int number = 0; number < 25; number++) {
            Message<byte[]> message = next(first);
            same(number, number(message));
            check(last == null || message.getMessageId().compareTo(last) > 0, "ids do not grow");
            last = message.getMessageId();
        }
        try {
            consumer(topic, SubscriptionType.Exclusive).subscribe();
            throw new AssertionError("a second exclusive consumer was accepted");
        } catch (PulsarClientException.ConsumerBusyException expected) {
            first.acknowledgeCumulative(last);
        }
        first.close();
        try (Consumer<byte[]> second = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            hasNoMore(second);
            second.unsubscribe();
        }
    }

    static void shared() throws Exception {
        String topic = topic("shared");
        fill(topic, 40, false);
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Shared).receiverQueueSize(5)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS);
        Map<Consumer<byte[]>, Integer> counts = new HashMap<>();
        Set<Integer> acknowledged = new HashSet<>();
        int[] redeliveries = {0};
        try (Consumer<byte[]> one = builder.clone().subscribe(); Consumer<byte[]> two = builder.clone().subscribe()) {
            Take take = (who, message) -> {
                redeliveries[0] += message.getRedeliveryCount();
                if (number(message) == 3 && message.getRedeliveryCount() == 0) {
                    who.negativeAcknowledge(message);
                    return;
                }
                who.acknowledge(message);
                acknowledged.add(number(message));
                counts.merge(who, 1, Integer::sum);
            };
            takeAll(List.of(one, two), 40, take);
            if (!acknowledged.contains(3)) {
                takeAll(List.of(one, two), 1, take);
            }
            same(40, acknowledged.size());
            same(1, redeliveries[0]);
            same(2, counts.size());
        }
    }

    static void keyShared() throws Exception {
        String topic = topic("key-shared");
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Key_Shared);
        Map<String, Consumer<byte[]>> owners = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        try (Consumer<byte[]> one = builder.clone().subscribe(); Consumer<byte[]> two = builder.clone().subscribe()) {
            try (Producer<byte[]> producer = client.newProducer().topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
                for (int number = 0; number < 280; number++) {
                    producer.newMessage().key("key-" + number % 28).value(("" + number).getBytes()).sendAsync();
                }
                producer.flush();
            }
            takeAll(List.of(one, two), 280, (who, message) -> {
                check(last.getOrDefault(message.getKey(), -1) < number(message), "order of " + message.getKey());
                last.put(message.getKey(), number(message));
                check(owners.putIfAbsent(message.getKey(), who) != (who == one ? two : one), "a key went to both");
                who.acknowledge(message);
            });
            same(2, new HashSet<>(owners.values()).size());
        }
    }

    static ConsumerBuilder<byte[]> sticky(String topic, int start, int last) {
        return consumer(topic, SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(start, last)));
    }

    static void keySharedSticky() throws Exception {
        String topic = topic("sticky");
        try (Consumer<byte[]> low = sticky(topic, 0, 32767).subscribe(); Consumer<byte[]> high = sticky(topic, 32768, 65535).subscribe()) {
            try {
                sticky(topic, 100, 200).subscribe();
                throw new AssertionError("overlapping ranges were accepted");
            } catch (PulsarClientException.ConsumerAssignException expected) {
                fill(topic, 28, false);
            }
            Map<Consumer<byte[]>, Set<String>> keys = new HashMap<>();
            takeAll(List.of(low, high), 28, (who, message) -> {
                keys.computeIfAbsent(who, each -> new HashSet<>()).add(message.getKey());
                who.acknowledge(message);
            });
            same(7, keys.values().stream().mapToInt(Set::size).sum());
        }
    }

    /** Says when a consumer begins and ceases to be the active one. */
    record Listener(BlockingQueue<String> events) implements ConsumerEventListener {
        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            events.add(consumer.getConsumerName());
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {}
    }

    static void failover() throws Exception {
        String topic = topic("failover");
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Failover).consumerEventListener(new Listener(events));
        Map<String, Consumer<byte[]>> consumers = new HashMap<>();
        consumers.put("one", builder.clone().consumerName("one").subscribe());
        same("one", events.poll(WAIT_MS, TimeUnit.MILLISECONDS));
        consumers.put("two", builder.clone().consumerName("two").subscribe());
        fill(topic, 10, false);
        List<Integer> numbers = new ArrayList<>();
        Set<String> actives = new HashSet<>();
        takeAll(List.copyOf(consumers.values()), 5, (who, message) -> {
            actives.add(who.getConsumerName());
            if (numbers.size() < 5) {
                numbers.add(number(message));
                who.acknowledge(message);
            }
        });
        same(1, actives.size());
        events.clear();
        consumers.remove(actives.iterator().next()).close();
        Consumer<byte[]> other = consumers.values().iterator().next();
        same(other.getConsumerName(), events.poll(WAIT_MS, TimeUnit.MILLISECONDS));
        takeAll(List.of(other), 5, (who, message) -> {
            numbers.add(number(message));
            who.acknowledge(message);
        });
        same(IntStream.range(0, 10).boxed().toList(), numbers);
        other.close();
    }

    static void batchIndexAcknowledgement() throws Exception {
        String topic = topic("batch-index");
        fill(topic, 10, true);
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Shared).enableBatchIndexAcknowledgment(true)
                .isAckReceiptEnabled(true);
        try (Consumer<byte[]> first = builder.clone().subscribe()) {
            for (int number = 0; number < 10; number++) {
                Message<byte[]> message = next(first);
                if (number(message) % 2 == 0) {
                    first.acknowledge(message);
                }
            }
        }
        try (Consumer<byte[]> second = builder.clone().subscribe()) {
            for (int number = 1; number < 10; number += 2) {
                Message<byte[]> message = next(second);
                same(number, number(message));
                second.acknowledge(message);
            }
            hasNoMore(second);
        }
    }

    static void deadLetters() throws Exception {
        String topic = topic("dead");
        fill(topic, 1, false);
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(1).build();
        try (Consumer<byte[]> retrying = consumer(topic, SubscriptionType.Shared).enableRetry(true).deadLetterPolicy(policy).subscribe()) {
            retrying.reconsumeLater(next(retrying), 300, TimeUnit.MILLISECONDS);
            Message<byte[]> again = next(retrying);
            check(again.getTopicName().endsWith("-s-RETRY"), again.getTopicName());
            same("1", again.getProperties().get("RECONSUMETIMES"));
            retrying.reconsumeLater(again, 300, TimeUnit.MILLISECONDS);
            try (Consumer<byte[]> dead = consumer(topic + "-s-DLQ", SubscriptionType.Shared).subscribe()) {
                same(0, number(next(dead)));
            }
        }
    }

    static void delayed() throws Exception {
        String topic = topic("delayed");
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            long start = System.currentTimeMillis();
            producer.newMessage().deliverAfter(1500, TimeUnit.MILLISECONDS).value("0".getBytes()).send();
            producer.newMessage().value("1".getBytes()).send();
            same(1, number(next(consumer)));
            same(0, number(next(consumer)));
            long passedMs = System.currentTimeMillis() - start;
            check(passedMs >= 1500, "delivered after " + passedMs + " ms");
        }
    }

    static void pattern() throws Exception {
        String pattern = "persistent://public/default/" + run + "-pattern-.*";
        try (Consumer<byte[]> consumer = client.newConsumer().topicsPattern(pattern).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            fill(topic("pattern-one"), 1, false);
            fill(topic("pattern-two"), 1, false);
            Set<String> topics = new HashSet<>(List.of(next(consumer).getTopicName(), next(consumer).getTopicName()));
            same(Set.of(topic("pattern-one"), topic("pattern-two")), topics);
        }
    }

    // -- positions -----------------------------------------------------------------------------------------------

    static void seek() throws Exception {
        String topic = topic("seek");
        fill(topic, 20, true);
        long middle = System.currentTimeMillis() + 1;
        while (System.currentTimeMillis() <= middle) {
            Thread.onSpinWait();
        }
        fill(topic, 20, true);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            List<MessageId> ids = new ArrayList<>();
            for (int at = 0; at < 40; at++) {
                ids.add(next(consumer).getMessageId());
            }
            same(ids.get(39), consumer.getLastMessageIds().get(0));
            consumer.seek(ids.get(13));
            same(14, number(next(consumer)));
            consumer.seek(middle);
            same(0, number(next(consumer)));
            consumer.seek(MessageId.latest);
            hasNoMore(consumer);
            consumer.seek(MessageId.earliest);
            for (int at = 0; at < 40; at++) {
                same(ids.get(at), next(consumer).getMessageId());
            }
        }
    }

    static void reader() throws Exception {
        String topic = topic("reader");
        fill(topic, 30, true);
        List<MessageId> ids = new ArrayList<>();
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                ids.add(reader.readNext(WAIT_MS, TimeUnit.MILLISECONDS).getMessageId());
            }
            same(30, ids.size());
            reader.seek(ids.get(20));
            same(21, number(reader.readNext(WAIT_MS, TimeUnit.MILLISECONDS)));
        }
        MessageId middle = MessageId.fromByteArray(ids.get(13).toByteArray());
        same(14, firstOf(client.newReader().topic(topic).startMessageId(middle)));
        same(13, firstOf(client.newReader().topic(topic).startMessageId(middle).startMessageIdInclusive()));
        same(29, firstOf(client.newReader().topic(topic).startMessageId(MessageId.latest).startMessageIdInclusive()));
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.latest).create()) {
            check(!reader.hasMessageAvailable(), "a message behind the latest");
        }
    }

    static int firstOf(ReaderBuilder<byte[]> builder) throws Exception {
        try (Reader<byte[]> reader = builder.create()) {
            check(reader.hasMessageAvailable(), "no message");
            return number(reader.readNext(WAIT_MS, TimeUnit.MILLISECONDS));
        }
    }

    static void tableView() throws Exception {
        String topic = topic("table");
        fill(topic, 20, true);
        try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
            same(7, view.size());
            same("17", new String(view.get("key-3")));
        }
    }

    // -- producers -----------------------------------------------------------------------------------------------

    public static class Point {
        public String name;
        public int height;
    }

    static void schema() throws Exception {
        String topic = topic("schema");
        Point point = new Point();
        point.name = "Zugspitze";
        point.height = 2962;
        try (Producer<Point> producer = client.newProducer(Schema.AVRO(Point.class)).topic(topic).create()) {
            producer.send(point);
        }
        try (Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            Message<GenericRecord> message = consumer.receive(WAIT_MS, TimeUnit.MILLISECONDS);
            check(message != null, "nothing received");
            same(2962, message.getValue().getField("height"));
        }
        client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create().close();
        try {
            client.newProducer(Schema.STRING).topic(topic).create();
            throw new AssertionError("an incompatible schema was accepted");
        } catch (PulsarClientException.IncompatibleSchemaException expected) {
            check(!expected.getMessage().isEmpty(), "it says why");
        }
    }

    static void chunks() throws Exception {
        String topic = topic("chunks");
        byte[] large = new byte[12 << 20];
        new Random(1).nextBytes(large);
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).enableChunking(true).create();
                Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).subscribe()) {
            MessageId sent = producer.send(large);
            Message<byte[]> message = next(consumer);
            check(Arrays.equals(large, message.getData()), "other bytes");
            same(sent, message.getMessageId());
            consumer.acknowledge(message);
        }
    }

    static void exclusiveProducer() throws Exception {
        String topic = topic("access");
        Producer<byte[]> first = client.newProducer().topic(topic).accessMode(ProducerAccessMode.Exclusive).create();
        first.send("0".getBytes());
        try {
            client.newProducer().topic(topic).create();
            throw new AssertionError("a second producer was accepted");
        } catch (PulsarClientException.ProducerBusyException | PulsarClientException.ProducerFencedException expected) {
            check(first.isConnected(), "the first one remains");
        }
        Producer<byte[]> second = client.newProducer().topic(topic).accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        try {
            first.send("1".getBytes());
            throw new AssertionError("a fenced producer's message was accepted");
        } catch (PulsarClientException.ProducerFencedException expected) {
            second.send("2".getBytes());
        }
        CompletableFuture<Producer<byte[]>> waiting = client.newProducer().topic(topic)
                .accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        second.send("3".getBytes());
        check(!waiting.isDone(), "it does not wait");
        second.close();
        try (Producer<byte[]> third = waiting.get(WAIT_MS, TimeUnit.MILLISECONDS)) {
            third.send("4".getBytes());
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int number : new int[] {0, 2, 3, 4}) {
                same(number, number(next(consumer)));
            }
        }
    }

    static void deduplication() throws Exception {
        String topic = topic("deduplication");
        for (int session = 0; session < 2; session++) {
            try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("named").create()) {
                same(session == 0 ? -1L : 42L, producer.getLastSequenceId());
                for (int number = 0; number < 3; number++) {
                    producer.newMessage().sequenceId(40 + number + session).value(("" + (number + session)).getBytes()).send();
                }
            }
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int number = 0; number < 4; number++) {
                same(number, number(next(consumer)));
            }
            hasNoMore(consumer);
        }
    }

    /** A topic with three partitions, which the caller has made. */
    static void partitioned() throws Exception {
        String topic = topic("partitioned");
        same(3, client.getPartitionsForTopic(topic).get(WAIT_MS, TimeUnit.MILLISECONDS).size());
        fill(topic, 30, true);
        Set<String> partitions = new TreeSet<>();
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).subscribe()) {
            takeAll(List.of(consumer), 30, (who, message) -> {
                partitions.add(message.getTopicName());
                who.acknowledge(message);
            });
        }
        check(partitions.size() > 1, "all in " + partitions);
    }
}
