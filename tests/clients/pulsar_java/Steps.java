import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** What the steps share: one client, topics named after the run, messages that count, and checks. */
class Steps {
    static final int WAIT_MS = 20_000;
    static final int QUIET_MS = 500;

    static PulsarClient client;
    static String run;
    static String url;

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

    static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(WAIT_MS, TimeUnit.MILLISECONDS);
        check(message != null, "nothing received");
        return message;
    }

    static <T> T next(BlockingQueue<T> queue) throws Exception {
        T found = queue.poll(WAIT_MS, TimeUnit.MILLISECONDS);
        check(found != null, "nothing came");
        return found;
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
        Set<MessageId> seen = new HashSet<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (seen.size() < count) {
            check(System.currentTimeMillis() < end, "got only " + seen.size());
            for (Consumer<byte[]> each : consumers) {
                Message<byte[]> message = each.receive(20, TimeUnit.MILLISECONDS);
                if (message != null) {
                    take.take(each, message);
                    seen.add(message.getMessageId());
                }
            }
        }
    }
}
