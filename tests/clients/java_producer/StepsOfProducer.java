import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer for the tests: each line of standard input is a burst of values, sent one batch each without waiting.
 *
 * <p>Arguments: BOOTSTRAP TOPIC. Each outcome is a line of standard output: VALUE OFFSET, or VALUE error NAME.
 */
public class StepsOfProducer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "0");
        settings.put("batch.size", "0");
        settings.put("delivery.timeout.ms", "40000");
        settings.put("request.timeout.ms", "20000");
        StringSerializer serializer = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, serializer, serializer)) {
            producer.partitionsFor(arguments[1]);
            System.out.println("ready");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                for (String value : line.split(" ")) {
                    producer.send(new ProducerRecord<>(arguments[1], 0, null, value), (told, error) -> {
                        String outcome = error == null ? Long.toString(told.offset()) : "error " + error.getClass().getSimpleName();
                        System.out.println(value + " " + outcome);
                    });
                    Thread.sleep(40);
                }
            }
        }
    }
}
