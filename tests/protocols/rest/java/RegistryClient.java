import java.util.Base64;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

/**
 * Confluent's Java client, and a serializer and deserializer that use it. Prints one "name=value" a line.
 *
 * <pre>RegistryClient URL calls | RegistryClient URL write ID | RegistryClient URL read BASE64</pre>
 */
public class RegistryClient {
    private static final String TEXT =
            "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":["
                    + "{\"name\":\"id\",\"type\":\"long\"},"
                    + "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}";
    private static final Schema ORDER = new Schema.Parser().parse(TEXT);

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        switch (arguments[1]) {
            case "calls" -> calls(new CachedSchemaRegistryClient(url, 100));
            case "write" -> write(url, Long.parseLong(arguments[2]));
            case "read" -> read(url, Base64.getDecoder().decode(arguments[2]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    private static void calls(CachedSchemaRegistryClient client) throws Exception {
        AvroSchema schema = new AvroSchema(TEXT);
        int id = client.register("java-value", schema);
        show("same id", client.getId("java-value", schema) == id);
        show("version", client.getVersion("java-value", schema));
        show("by id", client.getSchemaById(id).canonicalString().equals(schema.canonicalString()));
        SchemaMetadata latest = client.getLatestSchemaMetadata("java-value");
        show("latest", latest.getVersion() + "/" + latest.getSchemaType() + "/" + (latest.getId() == id));
        show("subjects", client.getAllSubjects().contains("java-value"));
        show("subjects of id", client.getAllSubjectsById(id));
        show("versions of id", client.getAllVersionsById(id).size());
        show("versions", client.getAllVersions("java-value"));
        AvroSchema wider = new AvroSchema(TEXT.replace("]}", ",{\"name\":\"zone\",\"type\":\"string\"}]}"));
        show("compatible", client.testCompatibility("java-value", wider));
        show("reasons", !client.testCompatibilityVerbose("java-value", wider).isEmpty());
        show("level", client.updateCompatibility("java-value", "NONE"));
        show("level now", client.getCompatibility("java-value"));
        show("mode", client.setMode("READONLY", "java-value"));
        try {
            client.register("java-value", wider);
        } catch (RestClientException refused) {
            show("refused", refused.getStatus() + "/" + refused.getErrorCode());
        }
        show("mode now", client.setMode("READWRITE", "java-value"));
        int wide = client.register("java-value", wider);
        show("deleted version", client.deleteSchemaVersion("java-value", "2"));
        show("deleted", client.deleteSubject("java-value"));
        show("deleted for good", client.deleteSubject("java-value", true));
        show("ids grow", wide > id);
    }

    private static void write(String url, long id) {
        GenericRecord order = new GenericData.Record(ORDER);
        order.put("id", id);
        order.put("note", "aus Java");
        byte[] octets = ConfluentRegistryAvroSerializationSchema.forGeneric("orders-value", ORDER, url).serialize(order);
        show("value", Base64.getEncoder().encodeToString(octets));
    }

    private static void read(String url, byte[] octets) throws Exception {
        show("record", ConfluentRegistryAvroDeserializationSchema.forGeneric(ORDER, url).deserialize(octets));
    }

    private static void show(String name, Object value) {
        System.out.println(name + "=" + value);
    }
}
