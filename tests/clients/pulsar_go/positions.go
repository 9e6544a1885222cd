package main

import (
	"errors"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func seek() error {
	topic := topic("seek")
	if err := fill(topic, 20, true); err != nil {
		return err
	}
	middle := time.Now().Add(2 * time.Millisecond)
	<-time.After(time.Until(middle))
	if err := fill(topic, 20, true); err != nil {
		return err
	}
	consumer, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer consumer.Close()
	first, err := next(consumer)
	if err != nil {
		return err
	}
	if err := expect(consumer, append(numbers(1, 20), numbers(0, 20)...)...); err != nil {
		return err
	}
	if err := errors.Join(consumer.SeekByTime(middle), expect(consumer, numbers(0, 20)...), hasNoMore(consumer)); err != nil {
		return err
	}
	return errors.Join(consumer.Seek(first.ID()), expect(consumer, numbers(1, 20)...)) // behind it, as the library does by default
}

func reader() error {
	topic := topic("reader")
	if err := fill(topic, 30, true); err != nil {
		return err
	}
	all, err := read(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()}, 30)
	if err != nil {
		return err
	}
	middle, err := pulsar.DeserializeMessageID(all[13].ID().Serialize())
	if err != nil {
		return err
	}
	after, err := read(pulsar.ReaderOptions{Topic: topic, StartMessageID: middle}, 16)
	if err != nil {
		return err
	}
	from, err := read(pulsar.ReaderOptions{Topic: topic, StartMessageID: middle, StartMessageIDInclusive: true}, 17)
	if err != nil {
		return err
	}
	last, err := read(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true}, 1)
	if err != nil {
		return err
	}
	return same([]string{"14", "13", "29"}, []string{text(after[0]), text(from[0]), text(last[0])})
}

// Everything that a reader finds, which must be `count` messages.
func read(options pulsar.ReaderOptions, count int) ([]pulsar.Message, error) {
	reader, err := client.CreateReader(options)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := []pulsar.Message{}
	for reader.HasNext() {
		context, cancel := within(wait)
		message, err := reader.Next(context)
		cancel()
		if err != nil {
			return nil, err
		}
		found = append(found, message)
	}
	return found, same(count, len(found))
}

func tableView() error {
	topic := topic("table")
	if err := fill(topic, 20, true); err != nil {
		return err
	}
	view, err := client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeOf([]byte{}),
	})
	if err != nil {
		return err
	}
	defer view.Close()
	if err := errors.Join(same(7, view.Size()), same([]byte("17"), view.Get("key-3"))); err != nil {
		return err
	}
	err = send(pulsar.ProducerOptions{Topic: topic},
		&pulsar.ProducerMessage{Key: "key-3", Payload: []byte("new")}, &pulsar.ProducerMessage{Key: "key-4"},
		&pulsar.ProducerMessage{Key: "later", Payload: []byte("more")})
	if err != nil {
		return err
	}
	if err := until(func() bool { return view.ContainsKey("later") }, "the view hears of what comes later"); err != nil {
		return err
	}
	return errors.Join(same([]byte("new"), view.Get("key-3")), same(false, view.ContainsKey("key-4")), same(7, view.Size()))
}

func readerSeek() error {
	topic := topic("reader-seek")
	if err := fill(topic, 20, true); err != nil {
		return err
	}
	middle := time.Now().Add(2 * time.Millisecond)
	<-time.After(time.Until(middle))
	if err := fill(topic, 10, true); err != nil {
		return err
	}
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return err
	}
	defer reader.Close()
	reads := func(wanted ...string) error {
		for _, value := range wanted {
			context, cancel := within(wait)
			message, err := reader.Next(context)
			cancel()
			if err != nil {
				return err
			}
			if err := same(value, text(message)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(reads(append(numbers(0, 20), numbers(0, 10)...)...), reader.SeekByTime(middle)); err != nil {
		return err
	}
	if err := errors.Join(reads(numbers(0, 10)...), same(false, reader.HasNext()), reader.SeekByTime(middle.Add(-time.Hour))); err != nil {
		return err
	}
	return reads(append(numbers(0, 20), numbers(0, 10)...)...)
}
