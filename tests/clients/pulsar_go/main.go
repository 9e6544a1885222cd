// Features of Pulsar as its Go client knows them, against a server: `pulsar_go pulsar://HOST:PORT RUN`.
//
// Says a line per step: `ok STEP`, or `failed STEP REASON`. Topics are named after RUN; RUN-partitioned has three partitions.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	wait  = 20 * time.Second
	quiet = 500 * time.Millisecond
)

var (
	client pulsar.Client
	run    string
)

type step struct {
	name string
	run  func() error
}

func main() {
	logger := log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	made, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: wait, Logger: logger})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client, run = made, os.Args[2]
	defer client.Close()
	steps := []step{
		{"exclusive", exclusive}, {"shared", shared}, {"key-shared", keyShared}, {"failover", failover}, {"seek", seek},
		{"reader", reader}, {"schema", schema}, {"chunks", chunks}, {"dead-letters", deadLetters}, {"delayed", delayed},
		{"exclusive-producer", exclusiveProducer}, {"deduplication", deduplication}, {"table-view", tableView},
		{"pattern", pattern}, {"partitioned", partitioned},
	}
	for _, each := range steps {
		if err := each.run(); err != nil {
			fmt.Println("failed", each.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", each.name)
		}
	}
}

// -- what the steps share ---------------------------------------------------------------------------------------

func topic(name string) string { return "persistent://public/default/" + run + "-" + name }

func same(expected, found any) error {
	if !reflect.DeepEqual(expected, found) {
		return fmt.Errorf("expected %v, got %v", expected, found)
	}
	return nil
}

func within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}

// Messages whose value counts from 0, in batches of ten or alone.
func fill(topic string, count int, isBatched bool) error {
	options := pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !isBatched, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second,
	}
	producer, err := client.CreateProducer(options)
	if err != nil {
		return err
	}
	defer producer.Close()
	failed := make(chan error, count)
	for number := range count {
		message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number)), Key: fmt.Sprintf("key-%d", number%7)}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			failed <- err
		})
	}
	context, cancel := within(wait)
	defer cancel()
	err = producer.FlushWithCtx(context)
	for range count {
		err = errors.Join(err, <-failed)
	}
	return err
}

func subscribe(topic string, kind pulsar.SubscriptionType) (pulsar.Consumer, error) {
	return client.Subscribe(options(topic, kind))
}

func options(topic string, kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: kind, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		NackRedeliveryDelay: 200 * time.Millisecond,
	}
}

func next(consumer pulsar.Consumer) (pulsar.Message, error) {
	context, cancel := within(wait)
	defer cancel()
	return consumer.Receive(context)
}

func hasNoMore(consumer pulsar.Consumer) error {
	context, cancel := within(quiet)
	defer cancel()
	if message, err := consumer.Receive(context); err == nil {
		return fmt.Errorf("one more received: %s", message.Payload())
	}
	return nil
}

// Receives values and compares them with `wanted`, in order.
func expect(consumer pulsar.Consumer, wanted ...string) error {
	for _, value := range wanted {
		message, err := next(consumer)
		if err != nil {
			return err
		}
		if err := errors.Join(same(value, string(message.Payload())), consumer.Ack(message)); err != nil {
			return err
		}
	}
	return nil
}

func numbers(start, end int) []string {
	found := []string{}
	for number := start; number < end; number++ {
		found = append(found, strconv.Itoa(number))
	}
	return found
}

// Gives what comes to `consumers` to `take` until that has counted to `count`.
func takeAll(consumers []pulsar.Consumer, count int, take func(at int, message pulsar.Message) bool) error {
	for end := time.Now().Add(wait); count > 0; {
		if time.Now().After(end) {
			return fmt.Errorf("%d messages are missing", count)
		}
		for at, consumer := range consumers {
			select {
			case message := <-consumer.Chan():
				if take(at, message.Message) {
					count--
				}
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// -- subscriptions ----------------------------------------------------------------------------------------------

func exclusive() error {
	topic := topic("exclusive")
	if err := fill(topic, 25, true); err != nil {
		return err
	}
	first, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	if other, err := subscribe(topic, pulsar.Exclusive); err == nil {
		other.Close()
		return errors.New("a second exclusive consumer was accepted")
	}
	var last pulsar.Message
	for _, value := range numbers(0, 25) {
		if last, err = next(first); err != nil {
			return err
		}
		if err := same(value, string(last.Payload())); err != nil {
			return err
		}
	}
	if err := first.AckCumulative(last); err != nil {
		return err
	}
	first.Close()
	second, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer second.Close()
	return errors.Join(hasNoMore(second), second.Unsubscribe())
}

func pair(topic string, kind pulsar.SubscriptionType) ([]pulsar.Consumer, error) {
	one, err := subscribe(topic, kind)
	if err != nil {
		return nil, err
	}
	two, err := subscribe(topic, kind)
	return []pulsar.Consumer{one, two}, err
}

func shared() error {
	topic := topic("shared")
	consumers, err := pair(topic, pulsar.Shared)
	if err != nil {
		return err
	}
	if err := fill(topic, 40, false); err != nil {
		return err
	}
	redeliveries, counts := uint32(0), [2]int{}
	err = takeAll(consumers, 40, func(at int, message pulsar.Message) bool {
		redeliveries += message.RedeliveryCount()
		if string(message.Payload()) == "3" && message.RedeliveryCount() == 0 {
			consumers[at].Nack(message)
			return false
		}
		counts[at]++
		return consumers[at].Ack(message) == nil
	})
	for _, each := range consumers {
		each.Close()
	}
	if counts[0] == 0 || counts[1] == 0 {
		err = errors.Join(err, fmt.Errorf("one got nothing: %v", counts))
	}
	return errors.Join(err, same(uint32(1), redeliveries))
}

func keyShared() error {
	topic := topic("key-shared")
	consumers, err := pair(topic, pulsar.KeyShared)
	if err != nil {
		return err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range 280 {
		message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number)), Key: fmt.Sprintf("key-%d", number%28)}
		producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	}
	owners, last, wrong := map[string]int{}, map[string]int{}, error(nil)
	err = takeAll(consumers, 280, func(at int, message pulsar.Message) bool {
		number, _ := strconv.Atoi(string(message.Payload()))
		if owner, isKnown := owners[message.Key()]; isKnown && (owner != at || last[message.Key()] > number) {
			wrong = fmt.Errorf("%d of %s came to %d behind %d", number, message.Key(), at, last[message.Key()])
		}
		owners[message.Key()], last[message.Key()] = at, number
		return consumers[at].Ack(message) == nil
	})
	for _, each := range consumers {
		each.Close()
	}
	return errors.Join(err, wrong)
}

type listener struct{ names chan string }

func (l listener) BecameActive(consumer pulsar.Consumer, _ string, _ int32) {
	l.names <- consumer.Name()
}
func (l listener) BecameInactive(pulsar.Consumer, string, int32) {}

func failover() error {
	topic, events := topic("failover"), listener{make(chan string, 10)}
	consumers := map[string]pulsar.Consumer{}
	for _, name := range []string{"one", "two"} {
		wanted := options(topic, pulsar.Failover)
		wanted.Name, wanted.EventListener = name, events
		consumer, err := client.Subscribe(wanted)
		if err != nil {
			return err
		}
		consumers[name] = consumer
	}
	if err := fill(topic, 10, false); err != nil {
		return err
	}
	for _, part := range [][]string{numbers(0, 5), numbers(5, 10)} {
		select {
		case name := <-events.names:
			if err := expect(consumers[name], part...); err != nil {
				return err
			}
			consumers[name].Close()
		case <-time.After(wait):
			return errors.New("nobody became active")
		}
	}
	return nil
}

func deadLetters() error {
	topic := topic("dead")
	if err := fill(topic, 1, false); err != nil {
		return err
	}
	wanted := options(topic, pulsar.Shared)
	wanted.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: topic + "-letters"}
	consumer, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for count := range 2 {
		message, err := next(consumer)
		if err != nil {
			return err
		}
		if err := same(uint32(count), message.RedeliveryCount()); err != nil {
			return err
		}
		consumer.Nack(message)
	}
	dead, err := subscribe(topic+"-letters", pulsar.Shared)
	if err != nil {
		return err
	}
	defer dead.Close()
	return expect(dead, "0")
}

func delayed() error {
	topic := topic("delayed")
	consumer, err := subscribe(topic, pulsar.Shared)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	start := time.Now()
	later := &pulsar.ProducerMessage{Payload: []byte("0"), DeliverAfter: 1500 * time.Millisecond}
	_, err = producer.Send(context.Background(), later)
	if err == nil {
		_, err = producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("1")})
	}
	if err = errors.Join(err, expect(consumer, "1", "0")); err == nil && time.Since(start) < 1500*time.Millisecond {
		err = fmt.Errorf("delivered after %s", time.Since(start))
	}
	return err
}

func pattern() error {
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		TopicsPattern: "persistent://public/default/" + run + "-pattern-.*", SubscriptionName: "s", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AutoDiscoveryPeriod: time.Second,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	for _, name := range []string{"pattern-one", "pattern-two"} {
		if err := errors.Join(fill(topic(name), 1, false), expect(consumer, "0")); err != nil {
			return err
		}
	}
	return nil
}
