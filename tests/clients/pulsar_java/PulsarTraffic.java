import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.pulsar.client.api.*;

/**
 * A producer and a Shared consumer of one topic: `PulsarTraffic URL TOPIC`. A message each millisecond, which is its number.
 *
 * <p>Says `running` when the first message has come back. On standard input, `mark` begins a new measurement of gaps, `stop` lets what is
 * under way come to its end, says what happened, as names and numbers, and ends.
 */
public class PulsarTraffic {
    static final int WAIT_S = 60;

    /** Numbers as they come, and the longest time between two. */
    static class Seen {
        private final BitSet numbers = new BitSet();
        private int twice;
        private long lastNs = System.nanoTime();
        private long gapNs;

        synchronized void see(int number) {
            if (numbers.get(number)) {
                twice++;
            }
            numbers.set(number);
            gapNs = Math.max(gapNs, System.nanoTime() - lastNs);
            lastNs = System.nanoTime();
            notifyAll();
        }

        synchronized void mark() {
            gapNs = 0;
        }

        synchronized void await(int count) throws InterruptedException {
            long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (numbers.cardinality() < count && System.nanoTime() < endNs) {
                wait(100);
            }
        }

        synchronized String say(String name) {
            return name + " " + numbers.cardinality() + " " + name + "-twice " + twice + " " + name + "-gap-ms " + gapNs / 1_000_000;
        }
    }

    public static void main(String[] words) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build();
        Seen receipts = new Seen();
        Seen messages = new Seen();
        AtomicInteger failed = new AtomicInteger();
        Consumer<byte[]> consumer = client.newConsumer().topic(words[1]).subscriptionName("java").subscriptionType(SubscriptionType.Shared)
                .messageListener((who, message) -> {
                    messages.see(Integer.parseInt(new String(message.getData())));
                    who.acknowledgeAsync(message);
                }).subscribe();
        Producer<byte[]> producer = client.newProducer().topic(words[1]).enableBatching(false).blockIfQueueFull(true)
                .sendTimeout(0, TimeUnit.SECONDS).create();
        AtomicInteger sent = new AtomicInteger();
        AtomicBoolean goesOn = new AtomicBoolean(true);
        Thread sender = new Thread(() -> {
            long startNs = System.nanoTime();
            while (goesOn.get()) {
                int due = (int) ((System.nanoTime() - startNs) / 1_000_000);
                while (sent.get() <= due) {
                    int number = sent.getAndIncrement();
                    producer.sendAsync(("" + number).getBytes()).whenComplete((id, error) -> {
                        if (error == null) {
                            receipts.see(number);
                        } else {
                            failed.incrementAndGet();
                            System.err.println(number + ": " + error);
                        }
                    });
                }
                LockSupport.parkNanos(500_000);
            }
        });
        sender.start();
        messages.await(1);
        System.out.println("running");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null && !order.equals("stop"); order = orders.readLine()) {
            receipts.mark();
            messages.mark();
        }
        goesOn.set(false);
        sender.join();
        receipts.await(sent.get() - failed.get());
        messages.await(sent.get() - failed.get());
        System.out.println("sent " + sent + " failed " + failed + " " + receipts.say("receipts") + " " + messages.say("messages"));
        consumer.close();
        client.close();
        System.exit(0);
    }
}
