package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

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

// A schema of bytes: messages name a version, and their values can be looked up by it.
func schemaBytes() error {
	topic := topic("schema-bytes")
	bytes := pulsar.NewBytesSchema(nil)
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: bytes})
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, message := range []*pulsar.ProducerMessage{{Value: []byte("value")}, {Payload: []byte("value")}} {
		if _, err := producer.Send(context.Background(), message); err != nil {
			return err
		}
	}
	wanted := options(topic, pulsar.Exclusive)
	wanted.Schema = bytes
	consumer, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for range 2 {
		message, err := next(consumer)
		if err != nil {
			return err
		}
		found := []byte{}
		if err := errors.Join(message.GetSchemaValue(&found), same("value", string(found))); err != nil {
			return fmt.Errorf("version %v: %w", message.SchemaVersion(), err)
		}
	}
	return nil
}

// A client that asks for transactions is told at once that there are none.
func noTransactions() error {
	start := time.Now()
	made, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: wait, EnableTransaction: true})
	if err == nil {
		defer made.Close()
		_, err = made.NewTransaction(time.Minute)
	}
	if err == nil {
		return errors.New("a transaction began")
	}
	if !strings.Contains(err.Error(), "NotAllowedError") || time.Since(start) > wait/2 {
		return fmt.Errorf("after %v: %w", time.Since(start), err)
	}
	return nil
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

// Waits until the one before it goes, which is the only way for this library to take a topic over.
func waitingProducer() error {
	wanted := pulsar.ProducerOptions{Topic: topic("waiting-producer"), ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first, err := client.CreateProducer(wanted)
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		options := wanted
		options.ProducerAccessMode = pulsar.ProducerAccessModeWaitForExclusive
		waited <- send(options, &pulsar.ProducerMessage{Payload: []byte("1")})
	}()
	if _, err := first.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("0")}); err != nil {
		return err
	}
	select {
	case err := <-waited:
		return fmt.Errorf("it does not wait: %v", err)
	case <-time.After(quiet):
		first.Close()
	}
	select {
	case err := <-waited:
		if err != nil {
			return err
		}
	case <-time.After(wait):
		return errors.New("it waits for ever")
	}
	consumer, err := subscribe(wanted.Topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer consumer.Close()
	return errors.Join(expect(consumer, "0", "1"), hasNoMore(consumer))
}
