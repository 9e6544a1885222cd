package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// -- positions --------------------------------------------------------------------------------------------------

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

func text(message pulsar.Message) string { return string(message.Payload()) }

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
	return same(7, view.Size())
}

// -- producers --------------------------------------------------------------------------------------------------

type point struct {
	Name   string `json:"name"`
	Height int    `json:"height"`
}

func schema() error {
	topic := topic("schema")
	avro := pulsar.NewJSONSchema(
		`{"type":"record","name":"point","fields":[{"name":"name","type":"string"},{"name":"height","type":"int"}]}`, nil)
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: avro})
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: &point{"Zugspitze", 2962}}); err != nil {
		return err
	}
	wanted := options(topic, pulsar.Exclusive)
	wanted.Schema = avro
	consumer, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer consumer.Close()
	message, err := next(consumer)
	if err != nil {
		return err
	}
	found := point{}
	if err := errors.Join(message.GetSchemaValue(&found), same(point{"Zugspitze", 2962}, found)); err != nil {
		return err
	}
	if other, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewInt64Schema(nil)}); err == nil {
		other.Close()
		return errors.New("an incompatible schema was accepted")
	}
	return nil
}

func chunks() error {
	topic, large := topic("chunks"), make([]byte, 12<<20)
	rand.New(rand.NewSource(1)).Read(large)
	consumer, err := subscribe(topic, pulsar.Shared)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: large}); err != nil {
		return err
	}
	message, err := next(consumer)
	if err == nil && !bytes.Equal(large, message.Payload()) {
		err = errors.New("other bytes")
	}
	return err
}

func exclusiveProducer() error {
	wanted := pulsar.ProducerOptions{Topic: topic("access"), ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first, err := client.CreateProducer(wanted)
	if err != nil {
		return err
	}
	if second, err := client.CreateProducer(pulsar.ProducerOptions{Topic: wanted.Topic, MaxReconnectToBroker: new(uint)}); err == nil {
		second.Close()
		return errors.New("a second producer was accepted")
	}
	first.Close()
	third, err := client.CreateProducer(wanted)
	if err != nil {
		return err
	}
	defer third.Close()
	_, err = third.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("0")})
	return err
}

func deduplication() error {
	topic := topic("deduplication")
	for session := range 2 {
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Name: "named", DisableBatching: true})
		if err != nil {
			return err
		}
		for number := range 3 {
			sequence := int64(40 + number + session)
			message := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(number + session)), SequenceID: &sequence}
			if _, err := producer.Send(context.Background(), message); err != nil {
				return err
			}
		}
		producer.Close()
	}
	consumer, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer consumer.Close()
	return errors.Join(expect(consumer, numbers(0, 4)...), hasNoMore(consumer))
}

func partitioned() error {
	topic := topic("partitioned")
	names, err := client.TopicPartitions(topic)
	if err := errors.Join(err, same(3, len(names))); err != nil {
		return err
	}
	if err := fill(topic, 30, true); err != nil {
		return err
	}
	consumer, err := subscribe(topic, pulsar.Shared)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partitions := map[string]bool{}
	err = takeAll([]pulsar.Consumer{consumer}, 30, func(_ int, message pulsar.Message) bool {
		partitions[message.Topic()] = true
		return consumer.Ack(message) == nil
	})
	if len(partitions) < 2 {
		err = errors.Join(err, fmt.Errorf("all in %v", partitions))
	}
	return err
}
