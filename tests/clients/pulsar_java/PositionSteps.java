import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/** Seeking, readers and table views. */
class PositionSteps extends Steps {
    /** A time after all present messages and before all later ones. */
    static long between() {
        long now = System.currentTimeMillis() + 1;
        while (System.currentTimeMillis() <= now) {
            Thread.onSpinWait();
        }
        return now;
    }

    static void seek() throws Exception {
        String topic = topic("seek");
        fill(topic, 20, true);
        long middle = between();
        fill(topic, 20, true);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            List<MessageId> ids = new ArrayList<>();
            for (int at = 0; at < 40; at++) {
                ids.add(next(consumer).getMessageId());
            }
            same(ids.get(39), consumer.getLastMessageIds().get(0));
            consumer.seek(ids.get(13));
            same(14, number(next(consumer)));
            consumer.seek(middle);
            same(0, number(next(consumer)));
            consumer.seek(MessageId.latest);
            hasNoMore(consumer);
            consumer.seek(MessageId.earliest);
            for (int at = 0; at < 40; at++) {
                same(ids.get(at), next(consumer).getMessageId());
            }
        }
    }

    static void reader() throws Exception {
        String topic = topic("reader");
        fill(topic, 30, true);
        List<MessageId> ids = new ArrayList<>();
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                ids.add(next(reader).getMessageId());
            }
            same(30, ids.size());
        }
        MessageId middle = MessageId.fromByteArray(ids.get(13).toByteArray());
        same(14, firstOf(client.newReader().topic(topic).startMessageId(middle)));
        same(13, firstOf(client.newReader().topic(topic).startMessageId(middle).startMessageIdInclusive()));
        same(29, firstOf(client.newReader().topic(topic).startMessageId(MessageId.latest).startMessageIdInclusive()));
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.latest).create()) {
            check(!reader.hasMessageAvailable(), "a message behind the latest");
        }
    }

    static Message<byte[]> next(Reader<byte[]> reader) throws Exception {
        Message<byte[]> message = reader.readNext(WAIT_MS, TimeUnit.MILLISECONDS);
        check(message != null, "nothing to read");
        return message;
    }

    static int firstOf(ReaderBuilder<byte[]> builder) throws Exception {
        try (Reader<byte[]> reader = builder.create()) {
            check(reader.hasMessageAvailable(), "no message");
            return number(next(reader));
        }
    }

    static void readerSeek() throws Exception {
        String topic = topic("reader-seek");
        fill(topic, 20, true);
        long middle = between();
        fill(topic, 10, true);
        long end = between();
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            List<MessageId> ids = new ArrayList<>();
            for (int at = 0; at < 30; at++) {
                ids.add(next(reader).getMessageId());
            }
            reader.seek(middle);
            for (int at = 20; at < 30; at++) {
                same(ids.get(at), next(reader).getMessageId());
            }
            check(!reader.hasMessageAvailable(), "more than was written");
            reader.seek(ids.get(12));
            same(ids.get(13), next(reader).getMessageId());
            reader.seek(end);
            check(!reader.hasMessageAvailable(), "a message behind the last one");
            reader.seek(middle - 3_600_000);
            same(ids.get(0), next(reader).getMessageId());
        }
    }

    /** A view has the last value of each key, reports later values, and forgets keys whose value is null. */
    static void tableView() throws Exception {
        String topic = topic("table");
        fill(topic, 20, true);
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            same(7, view.size());
            same("17", new String(view.get("key-3")));
            view.listen((key, value) -> heard.add(key + "=" + (value == null ? null : new String(value))));
            producer.newMessage().key("key-3").value("new".getBytes()).send();
            producer.newMessage().key("key-4").value(null).send();
            producer.newMessage().key("later").value("more".getBytes()).send();
            same("key-3=new", next(heard));
            same("key-4=null", next(heard));
            same("later=more", next(heard));
            same("new", new String(view.get("key-3")));
            check(!view.containsKey("key-4"), "a key without value is there");
            same(7, view.size());
        }
    }
}
