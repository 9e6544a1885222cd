import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Consumers of several topics, of topics to come, and of partitions. */
class TopicSteps extends Steps {
    /** A topic that is there, one that comes later, and one that does not fit. */
    static void pattern() throws Exception {
        String pattern = "persistent://public/default/" + run + "-pattern-.*";
        fill(topic("pattern-there"), 1, false);
        fill(topic("patterns"), 1, false);
        try (Consumer<byte[]> consumer = client.newConsumer().topicsPattern(pattern).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            same(topic("pattern-there"), next(consumer).getTopicName());
            fill(topic("pattern-later"), 1, false);
            same(topic("pattern-later"), next(consumer).getTopicName());
            hasNoMore(consumer);
        }
    }

    static void severalTopics() throws Exception {
        List<String> topics = List.of(topic("several-one"), topic("several-two"));
        for (String topic : topics) {
            fill(topic, 10, true);
        }
        Set<String> found = new HashSet<>();
        try (Consumer<byte[]> consumer = client.newConsumer().topics(topics).subscriptionName("s").subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            takeAll(List.of(consumer), 20, (who, message) -> {
                found.add(message.getTopicName());
                who.acknowledge(message);
            });
            hasNoMore(consumer);
        }
        same(Set.copyOf(topics), found);
    }

    static void partitioned() throws Exception {
        String topic = topic("partitioned");
        same(3, client.getPartitionsForTopic(topic, false).get(WAIT_MS, TimeUnit.MILLISECONDS).size());
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
