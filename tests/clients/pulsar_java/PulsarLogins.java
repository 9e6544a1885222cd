import java.nio.charset.StandardCharsets;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * Logins of Pulsar's own Java client: a line of standard input is an attempt, words with a tab between them.
 *
 * <p>NAME URL AUTHORITY KIND SECRET ACTION TOPIC WAIT: AUTHORITY is the file of the certificates that the client trusts, or empty; KIND is token,
 * basic (USER:PASSWORD), certificate (FILE:KEY_FILE) or none; ACTION is write or read; WAIT is the client's timeout in seconds. Says for
 * each attempt `NAME ok`, or `NAME` with the class and the text of the exception, with tabs between them. The first attempt goes alone, and the
 * others after it at the same time.
 */
public class PulsarLogins {
    static final int ATTEMPTS_MAX = 100;

    public static void main(String[] words) throws Exception {
        Scanner attempts = new Scanner(System.in, StandardCharsets.UTF_8);
        ExecutorService threads = Executors.newFixedThreadPool(ATTEMPTS_MAX);
        boolean isFirst = true;
        while (attempts.hasNextLine()) {
            String[] attempt = attempts.nextLine().split("\t", -1);
            Future<?> ended = threads.submit(() -> System.out.println(attempt[0] + "\t" + outcome(attempt)));
            if (isFirst) {
                ended.get();
                isFirst = false;
            }
        }
        threads.shutdown();
        System.exit(threads.awaitTermination(10, TimeUnit.MINUTES) ? 0 : 1);
    }

    static String outcome(String[] attempt) {
        int waitS = Integer.parseInt(attempt[7]);
        try (PulsarClient client = client(attempt[1], attempt[2], attempt[3], attempt[4], waitS)) {
            if (attempt[5].equals("write")) {
                write(client, attempt[6]);
            } else {
                read(client, attempt[6], waitS);
            }
            return "ok";
        } catch (Exception error) {
            return error.getClass().getSimpleName() + "\t" + ("" + error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    static PulsarClient client(String url, String authority, String kind, String secret, int waitS) throws Exception {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(url).operationTimeout(waitS, TimeUnit.SECONDS)
                .lookupTimeout(waitS, TimeUnit.SECONDS).enableTlsHostnameVerification(true);
        if (!authority.isEmpty()) {
            builder.tlsTrustCertsFilePath(authority);
        }
        String[] parts = secret.split(":", 2);
        switch (kind) {
            case "token" -> builder.authentication(AuthenticationFactory.token(secret));
            case "certificate" -> builder.authentication(AuthenticationFactory.TLS(parts[0], parts[1]));
            case "basic" -> builder.authentication("org.apache.pulsar.client.impl.auth.AuthenticationBasic",
                    "{\"userId\":\"" + parts[0] + "\",\"password\":\"" + parts[1] + "\"}");
            default -> { }
        }
        return builder.build();
    }

    static void write(PulsarClient client, String topic) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            producer.send("x".getBytes(StandardCharsets.UTF_8));
        }
    }

    static void read(PulsarClient client, String topic, int waitS) throws Exception {
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            if (reader.readNext(waitS, TimeUnit.SECONDS) == null) {
                throw new IllegalStateException("nothing received");
            }
        }
    }
}
