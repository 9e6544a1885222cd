import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Key_Shared: one consumer per key, order of each key. */
class KeySharedSteps extends Steps {
    static void keyShared() throws Exception {
        String topic = topic("key-shared");
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Key_Shared);
        Map<String, Consumer<byte[]>> owners = new HashMap<>();
        Map<String, Integer> last = new HashMap<>();
        try (Consumer<byte[]> one = builder.clone().subscribe(); Consumer<byte[]> two = builder.clone().subscribe()) {
            try (Producer<byte[]> producer = client.newProducer().topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
                send(producer, 0, 280, 28);
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

    /** Messages whose values count from `start`, of `keyCount` keys in turn. */
    static void send(Producer<byte[]> producer, int start, int end, int keyCount) throws Exception {
        for (int number = start; number < end; number++) {
            producer.newMessage().key("key-" + number % keyCount).value(("" + number).getBytes()).sendAsync();
        }
        producer.flush();
    }

    static ConsumerBuilder<byte[]> sticky(String topic, int start, int last) {
        return consumer(topic, SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(start, last)));
    }

    static void sticky() throws Exception {
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

    /**
     * Consumers come and go under load: no key skips, repeats or exchanges a message. One that goes leaves its last message, and whatever
     * it had not looked at, to the others.
     */
    static void changing() throws Exception {
        String topic = topic("changing");
        int roundCount = 20;
        int perRound = 100;
        int keyCount = 30;
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Key_Shared).receiverQueueSize(20);
        Deque<Consumer<byte[]>> consumers = new ArrayDeque<>(List.of(builder.clone().subscribe(), builder.clone().subscribe()));
        int[] due = new int[keyCount];
        for (int key = 0; key < keyCount; key++) {
            due[key] = key;
        }
        int[] taken = {0};
        Set<Consumer<byte[]>> owners = new HashSet<>();
        Take take = (who, message) -> {
            int key = number(message) % keyCount;
            same(due[key], number(message));
            due[key] += keyCount;
            taken[0]++;
            owners.add(who);
            who.acknowledge(message);
        };
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int round = 0; round < roundCount; round++) {
                send(producer, round * perRound, (round + 1) * perRound, keyCount);
                if (round % 2 == 0) {
                    consumers.add(builder.clone().subscribe());
                } else {
                    Consumer<byte[]> leaving = consumers.remove();
                    leaving.receive(QUIET_MS, TimeUnit.MILLISECONDS);
                    leaving.close();
                }
                takeAll(new ArrayList<>(consumers), perRound / 2, take);
            }
        }
        takeAll(new ArrayList<>(consumers), roundCount * perRound - taken[0], take);
        check(owners.size() > roundCount / 2, "only " + owners.size() + " consumers had messages");
        for (Consumer<byte[]> each : consumers) {
            hasNoMore(each);
            each.close();
        }
    }
}
