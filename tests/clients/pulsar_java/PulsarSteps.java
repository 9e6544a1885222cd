import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Features of Pulsar as its own Java client knows them, against a server: `PulsarSteps pulsar://HOST:PORT RUN [STEP…]`.
 *
 * <p>Says a line per step: `ok STEP`, or `failed STEP REASON`. Topics are named after RUN; RUN-partitioned and RUN-failover-partitions have
 * three partitions. Steps that are named `…-before` and `…-after` go together, with a restart of the server between them: they run only when
 * they are asked for.
 */
public class PulsarSteps {
    interface Step {
        void run() throws Exception;
    }

    static final int STEP_TIMEOUT_S = 60;

    public static void main(String[] words) throws Exception {
        Map<String, Step> steps = steps();
        Steps.run = words[1];
        Steps.url = words[0];
        Steps.client = PulsarClient.builder().serviceUrl(words[0]).operationTimeout(Steps.WAIT_MS, TimeUnit.MILLISECONDS).build();
        List<String> wanted = List.of(words).subList(2, words.length);
        for (Map.Entry<String, Step> step : steps.entrySet()) {
            String name = step.getKey();
            boolean isApart = name.endsWith("-before") || name.endsWith("-after");
            if (wanted.isEmpty() ? !isApart : wanted.contains(name)) {
                System.out.println(outcome(name, step.getValue()));
            }
        }
        Steps.client.close();
        System.exit(0);
    }

    static Map<String, Step> steps() {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("exclusive", SubscriptionSteps::exclusive);
        steps.put("shared", SubscriptionSteps::shared);
        steps.put("key-shared", KeySharedSteps::keyShared);
        steps.put("key-shared-sticky", KeySharedSteps::sticky);
        steps.put("key-shared-changing", KeySharedSteps::changing);
        steps.put("failover", SubscriptionSteps::failover);
        steps.put("failover-partitions", SubscriptionSteps::failoverPartitions);
        steps.put("batch-index-acknowledgement", SubscriptionSteps::batchIndexAcknowledgement);
        steps.put("acknowledgement-timeout", SubscriptionSteps::acknowledgementTimeout);
        steps.put("dead-letters", SubscriptionSteps::deadLetters);
        steps.put("delayed", SubscriptionSteps::delayed);
        steps.put("delayed-before", SubscriptionSteps::delayedBefore);
        steps.put("delayed-after", SubscriptionSteps::delayedAfter);
        steps.put("seek", PositionSteps::seek);
        steps.put("reader", PositionSteps::reader);
        steps.put("reader-seek", PositionSteps::readerSeek);
        steps.put("table-view", PositionSteps::tableView);
        steps.put("pattern", TopicSteps::pattern);
        steps.put("several-topics", TopicSteps::severalTopics);
        steps.put("partitioned", TopicSteps::partitioned);
        steps.put("fields", ProducerSteps::fields);
        steps.put("compression", ProducerSteps::compression);
        steps.put("encryption", ProducerSteps::encryption);
        steps.put("chunks", ProducerSteps::chunks);
        steps.put("schema", ProducerSteps::schema);
        steps.put("exclusive-producer", ProducerSteps::exclusiveProducer);
        steps.put("waiting-producer", ProducerSteps::waitingProducer);
        steps.put("fencing-producer", ProducerSteps::fencingProducer);
        steps.put("deduplication", ProducerSteps::deduplication);
        steps.put("no-transactions", ProducerSteps::noTransactions);
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
}
