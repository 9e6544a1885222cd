import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * `PulsarPaced URL TOPIC SIZE…` sends a message of each size, without waiting for receipts, and reads them all.
 *
 * <p>A message is its number, a space and filling. Says `sent` when all receipts have come, and then NUMBER SIZE for each message that it
 * reads.
 */
public class PulsarPaced {
    static final int WAIT_S = 60;

    public static void main(String[] words) throws Exception {
        int count = words.length - 2;
        try (PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).build()) {
            send(client, words);
            System.out.println("sent");
            try (Reader<byte[]> reader = client.newReader().topic(words[1]).startMessageId(MessageId.earliest).create()) {
                for (int number = 0; number < count; number++) {
                    Message<byte[]> message = reader.readNext(WAIT_S, TimeUnit.SECONDS);
                    String value = new String(message.getData(), StandardCharsets.UTF_8);
                    System.out.println(value.substring(0, value.indexOf(' ')) + " " + value.length());
                }
            }
        }
        System.exit(0);
    }

    static void send(PulsarClient client, String[] words) throws Exception {
        List<CompletableFuture<MessageId>> receipts = new ArrayList<>();
        try (Producer<byte[]> producer = client.newProducer().topic(words[1]).enableBatching(false).create()) {
            for (int at = 2; at < words.length; at++) {
                String begin = (at - 2) + " ";
                String value = begin + "x".repeat(Integer.parseInt(words[at]) - begin.length());
                receipts.add(producer.sendAsync(value.getBytes(StandardCharsets.UTF_8)));
            }
            for (CompletableFuture<MessageId> receipt : receipts) {
                receipt.get(WAIT_S, TimeUnit.SECONDS);
            }
        }
    }
}
