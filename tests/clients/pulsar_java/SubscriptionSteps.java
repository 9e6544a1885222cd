import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.*;

/** Exclusive, Shared and Failover subscriptions: who gets what, acknowledgements, redelivery, delay. */
class SubscriptionSteps extends Steps {
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

    /** Says when a consumer begins and ceases to be the active one: `NAME PARTITION`, partition -1 where there are none. */
    record Listener(BlockingQueue<String> events) implements ConsumerEventListener {
        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            events.add(consumer.getConsumerName() + " " + partition);
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
        same("one -1", next(events));
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
        same(other.getConsumerName() + " -1", next(events));
        takeAll(List.of(other), 5, (who, message) -> {
            numbers.add(number(message));
            who.acknowledge(message);
        });
        same(IntStream.range(0, 10).boxed().toList(), numbers);
        other.close();
    }

    /** Two consumers divide three partitions, each of which one of them has in order; when one goes, the other has all. */
    static void failoverPartitions() throws Exception {
        String topic = topic("failover-partitions");
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Failover).consumerEventListener(new Listener(events));
        Consumer<byte[]> one = builder.clone().consumerName("one").subscribe();
        Consumer<byte[]> two = builder.clone().consumerName("two").subscribe();
        Map<String, String> active = new HashMap<>();
        while (active.size() < 3 || new HashSet<>(active.values()).size() < 2) {
            String[] event = next(events).split(" ");
            active.put(event[1], event[0]);
        }
        Map<String, Integer> last = new HashMap<>();
        Take take = (who, message) -> {
            String partition = message.getTopicName();
            same(active.get(partition.substring(partition.lastIndexOf('-') + 1)), who.getConsumerName());
            check(last.getOrDefault(partition, -1) < number(message), "order of " + partition);
            last.put(partition, number(message));
            who.acknowledge(message);
        };
        fill(topic, 60, true);
        takeAll(List.of(one, two), 60, take);
        same(3, last.size());
        one.close();
        active.replaceAll((partition, name) -> "two");
        last.clear();
        fill(topic, 60, true);
        takeAll(List.of(two), 60, take);
        hasNoMore(two);
        two.close();
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

    static void acknowledgementTimeout() throws Exception {
        String topic = topic("timeout");
        fill(topic, 2, false);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).ackTimeout(1, TimeUnit.SECONDS).subscribe()) {
            same(0, number(next(consumer)));
            consumer.acknowledge(next(consumer));
            Message<byte[]> again = next(consumer);
            same(0, number(again));
            same(1, again.getRedeliveryCount());
            consumer.acknowledge(again);
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

    /** Delayed messages 0 (a second), 1 (ten seconds), 2 (an hour), and 3, which is delivered and acknowledged at once. */
    static void delayedBefore() throws Exception {
        String topic = topic("delayed-over-restart");
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).isAckReceiptEnabled(true).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            int[] delaysS = {1, 10, 3600};
            for (int number = 0; number < delaysS.length; number++) {
                long dueMs = System.currentTimeMillis() + delaysS[number] * 1000L;
                producer.newMessage().deliverAt(dueMs).property("due", "" + dueMs).value(("" + number).getBytes()).send();
            }
            producer.newMessage().value("3".getBytes()).send();
            Message<byte[]> message = next(consumer);
            same(3, number(message));
            consumer.acknowledge(message);
        }
    }

    /** What was delayed comes in its time, and what was acknowledged behind it not again. */
    static void delayedAfter() throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic("delayed-over-restart"), SubscriptionType.Shared).subscribe()) {
            for (int number = 0; number < 2; number++) {
                Message<byte[]> message = next(consumer);
                same(number, number(message));
                long dueMs = Long.parseLong(message.getProperty("due"));
                check(System.currentTimeMillis() >= dueMs, number + " came before its time");
                consumer.acknowledge(message);
            }
            hasNoMore(consumer);
        }
    }
}
