import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * What Pulsar's Java client notices of a topic that is terminated while it is used: `EndOfTopic pulsar://HOST:PORT http://HOST:PORT TOPIC`.
 *
 * <p>Says a line for each thing that was as it should be.
 */
public class EndOfTopic {
    static final int WAIT_S = 20;

    public static void main(String[] words) throws Exception {
        String topic = "persistent://public/default/" + words[2];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[0])
                .operationTimeout(WAIT_S, TimeUnit.SECONDS).build()) {
            Producer<byte[]> producer = client.newProducer().topic(topic).create();
            for (int number = 0; number < 3; number++) {
                producer.send(("" + number).getBytes());
            }
            CountDownLatch heard = new CountDownLatch(2);
            Consumer<byte[]> consumer = listening(client, topic, "shared", SubscriptionType.Shared, heard);
            Consumer<byte[]> standby = listening(client, topic, "failover", SubscriptionType.Failover, heard);
            Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create();
            for (int number = 0; number < 3; number++) {
                reader.readNext(WAIT_S, TimeUnit.SECONDS);
            }
            say("a reader goes on before", !reader.hasReachedEndOfTopic());

            terminate(words[1] + "/admin/v2/persistent/public/default/" + words[2] + "/terminate");

            say("listeners hear of the end", heard.await(WAIT_S, TimeUnit.SECONDS));
            say("consumers have reached it", consumer.hasReachedEndOfTopic() && standby.hasReachedEndOfTopic());
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (!reader.hasReachedEndOfTopic() && System.nanoTime() < until) {
                Thread.sleep(10);
            }
            say("a reader has reached it", reader.hasReachedEndOfTopic());
            say("a send is refused", isTerminated(() -> producer.send("late".getBytes())));
            say("a new producer is refused", isTerminated(() -> client.newProducer().topic(topic).create()));
        }
        System.exit(0);
    }

    static Consumer<byte[]> listening(PulsarClient client, String topic, String name, SubscriptionType type,
            CountDownLatch heard) throws Exception {
        return client.newConsumer().topic(topic).subscriptionName(name).subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .messageListener(new MessageListener<byte[]>() {
                    @Override
                    public void received(Consumer<byte[]> consumer, Message<byte[]> message) {
                        consumer.acknowledgeAsync(message);
                    }

                    @Override
                    public void reachedEndOfTopic(Consumer<byte[]> consumer) {
                        heard.countDown();
                    }
                }).subscribe();
    }

    interface Step {
        void run() throws Exception;
    }

    static boolean isTerminated(Step step) throws Exception {
        try {
            step.run();
            return false;
        } catch (PulsarClientException.TopicTerminatedException error) {
            return true;
        }
    }

    static void terminate(String url) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).POST(HttpRequest.BodyPublishers.noBody()).build();
        int status = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        say("the topic is terminated", status == 200);
    }

    static void say(String what, boolean isSo) {
        System.out.println((isSo ? "ok " : "failed ") + what);
    }
}
