import java.security.Key;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.GenericRecord;

/** Producers: what a message can carry, who may write, and what is stored once. */
class ProducerSteps extends Steps {
    static void fields() throws Exception {
        String topic = topic("fields");
        byte[] key = {0, (byte) 0xff, 7};
        Map<String, String> properties = Map.of("a", "1", "ü", "ö", "empty", "");
        try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("writer").create();
                Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            long start = System.currentTimeMillis();
            producer.newMessage().key("k").orderingKey("o".getBytes()).properties(properties).eventTime(1234).sequenceId(9)
                    .value("value".getBytes()).send();
            producer.newMessage().keyBytes(key).sequenceId(10).value(null).send();
            Message<byte[]> full = next(consumer);
            same("value", new String(full.getData()));
            same("k o 1234 9 writer", String.join(" ", full.getKey(), new String(full.getOrderingKey()), "" + full.getEventTime(),
                    "" + full.getSequenceId(), full.getProducerName()));
            same(properties, full.getProperties());
            check(full.getPublishTime() >= start && full.getPublishTime() <= System.currentTimeMillis(), "published at another time");
            Message<byte[]> bare = next(consumer);
            check(bare.getValue() == null, "a value where null was sent");
            check(Arrays.equals(key, bare.getKeyBytes()), "other bytes of the key");
        }
    }

    static void compression() throws Exception {
        String topic = topic("compression");
        String value = "value ".repeat(1000);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (CompressionType type : CompressionType.values()) {
                for (boolean isBatched : new boolean[] {false, true}) {
                    try (Producer<byte[]> producer = client.newProducer().topic(topic).compressionType(type).enableBatching(isBatched)
                            .create()) {
                        producer.send((type + value).getBytes());
                    }
                    same(type + value, new String(next(consumer).getData()));
                }
            }
        }
    }

    /** A key pair made for this run, in PEM. */
    record Keys(KeyPair pair) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return pem("PUBLIC KEY", pair.getPublic());
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return pem("PRIVATE KEY", pair.getPrivate());
        }

        private static EncryptionKeyInfo pem(String kind, Key key) {
            String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key.getEncoded());
            String whole = "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n";
            return new EncryptionKeyInfo(whole.getBytes(), Map.of("made", "here"));
        }
    }

    /** Messages that only clients can read: with the key as they were, without it as they are stored. */
    static void encryption() throws Exception {
        String topic = topic("encryption");
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        Keys keys = new Keys(generator.generateKeyPair());
        for (boolean isBatched : new boolean[] {false, true}) {
            try (Producer<byte[]> producer = client.newProducer().topic(topic).addEncryptionKey("key").cryptoKeyReader(keys)
                    .enableBatching(isBatched).batchingMaxPublishDelay(1, TimeUnit.SECONDS).compressionType(CompressionType.LZ4).create()) {
                producer.newMessage().key("k").property("plain", "text").value("secret".getBytes()).sendAsync();
                producer.newMessage().value("more".getBytes()).sendAsync();
                producer.flush();
            }
        }
        try (Consumer<byte[]> knowing = consumer(topic, SubscriptionType.Shared).cryptoKeyReader(keys).subscribe()) {
            for (String value : new String[] {"secret", "more", "secret", "more"}) {
                Message<byte[]> message = next(knowing);
                same(value, new String(message.getData()));
                if (value.equals("secret")) {
                    same("k text", message.getKey() + " " + message.getProperty("plain"));
                }
                knowing.acknowledge(message);
            }
            hasNoMore(knowing);
        }
        try (Consumer<byte[]> other = consumer(topic, SubscriptionType.Shared).subscriptionName("other")
                .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe()) {
            Message<byte[]> message = next(other);
            check(!new String(message.getData()).contains("secret"), "it is readable");
            check(message.getEncryptionCtx().orElseThrow().getKeys().containsKey("key"), "its key has no name");
        }
    }

    static void chunks() throws Exception {
        String topic = topic("chunks");
        byte[] large = new byte[12 << 20];
        new Random(1).nextBytes(large);
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).enableChunking(true).create();
                Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).subscribe()) {
            MessageId sent = producer.send(large);
            Message<byte[]> message = next(consumer);
            check(Arrays.equals(large, message.getData()), "other bytes");
            same(sent, message.getMessageId());
            consumer.acknowledge(message);
        }
    }

    public static class Point {
        public String name;
        public int height;
    }

    static void schema() throws Exception {
        for (Schema<Point> schema : List.of(Schema.AVRO(Point.class), Schema.JSON(Point.class))) {
            String topic = topic("schema-" + schema.getSchemaInfo().getType());
            Point point = new Point();
            point.name = "Zugspitze";
            point.height = 2962;
            try (Producer<Point> producer = client.newProducer(schema).topic(topic).create()) {
                producer.send(point);
            }
            try (Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
                same(2962, next(consumer).getValue().getField("height"));
            }
            client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create().close();
            try {
                client.newProducer(Schema.STRING).topic(topic).create();
                throw new AssertionError("an incompatible schema was accepted");
            } catch (PulsarClientException.IncompatibleSchemaException expected) {
                check(!expected.getMessage().isEmpty(), "it says why");
            }
        }
    }

    /** A client that asks for transactions is told at once that there are none. */
    static void noTransactions() throws Exception {
        long start = System.currentTimeMillis();
        Throwable refusal = null;
        try (PulsarClient own = PulsarClient.builder().serviceUrl(url).enableTransaction(true)
                .operationTimeout(WAIT_MS, TimeUnit.MILLISECONDS).build()) {
            own.newTransaction().build().get(WAIT_MS, TimeUnit.MILLISECONDS);
        } catch (Exception error) {
            refusal = error;
        }
        check(refusal != null, "a transaction began");
        check(System.currentTimeMillis() - start < WAIT_MS / 2, "told late: " + refusal);
        check(("" + refusal).contains("transactions are not supported"), "it does not say why: " + refusal);
    }

    static ProducerBuilder<byte[]> producer(String topic, ProducerAccessMode mode) {
        return client.newProducer().topic(topic).accessMode(mode);
    }

    static void holds(String topic, int... numbers) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int number : numbers) {
                same(number, number(next(consumer)));
            }
            hasNoMore(consumer);
        }
    }

    static void exclusiveProducer() throws Exception {
        String topic = topic("exclusive-producer");
        try (Producer<byte[]> first = producer(topic, ProducerAccessMode.Exclusive).create()) {
            for (ProducerAccessMode mode : new ProducerAccessMode[] {ProducerAccessMode.Shared, ProducerAccessMode.Exclusive}) {
                try {
                    producer(topic, mode).create();
                    throw new AssertionError("a second producer was accepted: " + mode);
                } catch (PulsarClientException.ProducerBusyException | PulsarClientException.ProducerFencedException expected) {
                    check(first.isConnected(), "the first one remains");
                }
            }
            first.send("0".getBytes());
        }
        try (Producer<byte[]> next = producer(topic, ProducerAccessMode.Shared).create()) {
            next.send("1".getBytes());
        }
        holds(topic, 0, 1);
    }

    static void waitingProducer() throws Exception {
        String topic = topic("waiting-producer");
        Producer<byte[]> first = producer(topic, ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<byte[]>> waiting = producer(topic, ProducerAccessMode.WaitForExclusive).createAsync();
        first.send("0".getBytes());
        check(!waiting.isDone(), "it does not wait");
        first.close();
        try (Producer<byte[]> second = waiting.get(WAIT_MS, TimeUnit.MILLISECONDS)) {
            second.send("1".getBytes());
        }
        holds(topic, 0, 1);
    }

    static void fencingProducer() throws Exception {
        String topic = topic("fencing-producer");
        Producer<byte[]> first = producer(topic, ProducerAccessMode.Exclusive).create();
        first.send("0".getBytes());
        try (Producer<byte[]> second = producer(topic, ProducerAccessMode.ExclusiveWithFencing).create()) {
            try {
                first.send("1".getBytes());
                throw new AssertionError("a fenced producer's message was accepted");
            } catch (PulsarClientException.ProducerFencedException expected) {
                second.send("2".getBytes());
            }
        }
        holds(topic, 0, 2);
    }

    static void deduplication() throws Exception {
        String topic = topic("deduplication");
        for (int session = 0; session < 2; session++) {
            try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("named").create()) {
                same(session == 0 ? -1L : 42L, producer.getLastSequenceId());
                for (int number = 0; number < 3; number++) {
                    producer.newMessage().sequenceId(40 + number + session).value(("" + (number + session)).getBytes()).send();
                }
            }
        }
        holds(topic, 0, 1, 2, 3);
    }
}
