// An idempotent producer of Kafka's own client, driven by lines: see ../clients/programs.py.
//
//	java -cp JARS/* KafkaLoad.java BOOTSTRAP TOPIC CLIENT_ID
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public final class KafkaLoad {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", arguments[2]);
        settings.put("enable.idempotence", "true");
        settings.put("batch.size", "200"); // a few records: several batches are under way at once
        settings.put("delivery.timeout.ms", "60000");
        settings.put("request.timeout.ms", "10000");
        settings.put("max.block.ms", "30000");
        settings.put("metadata.max.age.ms", "10000");
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            ProducerRecord<String, String> record = new ProducerRecord<>(
                    arguments[1], Integer.parseInt(words[1]), Long.parseLong(words[2]), words[3], words[4]);
            try {
                producer.send(record, (sent, error) -> {
                    synchronized (out) {
                        out.println(error == null ? "ok " + words[0] + " " + sent.offset()
                                : "error " + words[0] + " " + error.getClass().getSimpleName());
                    }
                });
            } catch (RuntimeException error) {
                synchronized (out) {
                    out.println("error " + words[0] + " " + error.getClass().getSimpleName());
                }
            }
        }
        producer.close(Duration.ofSeconds(15));
    }
}
