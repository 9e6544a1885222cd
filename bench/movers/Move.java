import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;

/** What move.py does, by the Java client: `Move URL TOPIC BEFORE_S AFTER_S`. */
public class Move {
    static final long PAUSE_NS = 1_000_000;
    static final long TIMEOUT_NS = 30_000_000_000L;
    static final long WARM_NS = 500_000_000;

    /** Times at which something came, and how often each number did. */
    static class Watched {
        final List<Long> atNs = new ArrayList<>();
        final Map<Integer, Integer> counts = new HashMap<>();

        synchronized void saw(int number) {
            atNs.add(System.nanoTime());
            counts.merge(number, 1, Integer::sum);
        }

        synchronized int size() {
            return counts.size();
        }

        synchronized int duplicates() {
            return counts.values().stream().mapToInt(count -> count - 1).sum();
        }

        /** The longest time between two, in milliseconds. */
        synchronized double gapMs(long start, long end) {
            long last = start;
            long longest = 0;
            for (long at : atNs) {
                if (at >= start && at <= end) {
                    longest = Math.max(longest, at - last);
                    last = at;
                }
            }
            return (last == start ? end - start : longest) / 1e6;
        }
    }

    public static void main(String[] words) throws Exception {
        String topic = words[1];
        long before = (long) (Double.parseDouble(words[2]) * 1e9);
        long after = (long) (Double.parseDouble(words[3]) * 1e9);
        Watched receipts = new Watched();
        Watched messages = new Watched();
        List<String> failures = Collections.synchronizedList(new ArrayList<>());
        PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build();
        Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("moved")
                .subscriptionType(SubscriptionType.Shared)
                .messageListener((own, message) -> {
                    messages.saw(Integer.parseInt(new String(message.getData(), StandardCharsets.US_ASCII)));
                    own.acknowledgeAsync(message);
                }).subscribe();
        Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).blockIfQueueFull(true)
                .sendTimeout(0, TimeUnit.SECONDS).create();
        long start = System.nanoTime();
        long moved = start + before;
        long end = moved + after;
        int sent = 0;
        boolean isSteady = false;
        for (long now = start; now < end; now = System.nanoTime()) {
            if (now >= moved && !isSteady) {
                isSteady = true;
                System.out.println("steady");
            }
            long due = start + sent * PAUSE_NS;
            if (now < due) {
                LockSupport.parkNanos(due - now);
                continue;
            }
            int number = sent++;
            producer.sendAsync(Integer.toString(number).getBytes(StandardCharsets.US_ASCII)).whenComplete((id, error) -> {
                if (error == null) {
                    receipts.saw(number);
                } else {
                    failures.add(error.toString().replace('"', '\''));
                }
            });
        }
        producer.flush();
        long limit = System.nanoTime() + TIMEOUT_NS;
        while ((messages.size() < sent || receipts.size() < sent) && System.nanoTime() < limit) {
            LockSupport.parkNanos(10 * PAUSE_NS);
        }
        String failed = failures.isEmpty() ? "" : '"' + failures.get(0).lines().findFirst().orElse("") + '"';
        System.out.printf(Locale.ROOT, "{\"sent\": %d, \"failures\": [%s], \"lost\": %d, \"duplicates\": %d, ", sent, failed,
                sent - messages.size(), messages.duplicates());
        System.out.printf(Locale.ROOT, "\"receipt_gap_ms\": %.3f, \"message_gap_ms\": %.3f, ", receipts.gapMs(moved, end),
                messages.gapMs(moved, end));
        System.out.printf(Locale.ROOT, "\"receipt_gap_before_ms\": %.3f, \"message_gap_before_ms\": %.3f}%n",
                receipts.gapMs(start + WARM_NS, moved), messages.gapMs(start + WARM_NS, moved));
        client.close();
        System.exit(0);
    }
}
