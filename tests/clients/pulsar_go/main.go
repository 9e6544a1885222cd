// Features of Pulsar as its Go client knows them, against a server: `pulsar_go pulsar://HOST:PORT RUN [STEP…]`.
//
// Says a line per step: `ok STEP`, or `failed STEP REASON`. Topics are named after RUN; RUN-partitioned and
// RUN-failover-partitions have three partitions. `pulsar_go logins` tries logins instead (logins.go), and `pulsar_go paced` writes and reads
// messages of given sizes (paced.go).
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
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
	if os.Args[1] == "logins" {
		logins(logger)
		return
	}
	if os.Args[1] == "paced" {
		if err := paced(logger); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	made, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], OperationTimeout: wait, Logger: logger})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client, run = made, os.Args[2]
	defer client.Close()
	steps := []step{
		{"exclusive", exclusive}, {"shared", shared}, {"key-shared", keyShared}, {"key-shared-sticky", keySharedSticky},
		{"key-shared-changing", keySharedChanging}, {"failover", failover}, {"failover-partitions", failoverPartitions},
		{"batch-index-acknowledgement", batchIndexAcknowledgement}, {"dead-letters", deadLetters}, {"retry-letters", retryLetters},
		{"delayed", delayed}, {"seek", seek}, {"reader", reader}, {"reader-seek", readerSeek}, {"table-view", tableView},
		{"pattern", pattern}, {"several-topics", severalTopics}, {"partitioned", partitioned}, {"fields", fields},
		{"compression", compression}, {"encryption", encryption}, {"chunks", chunks}, {"schema", schema}, {"schema-bytes", schemaBytes},
		{"exclusive-producer", exclusiveProducer}, {"waiting-producer", waitingProducer}, {"deduplication", deduplication}, {"no-transactions", noTransactions},
	}
	for _, each := range steps {
		if len(os.Args) > 3 && !slices.Contains(os.Args[3:], each.name) {
			continue
		}
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

// Gives what comes to `consumers` to `take` until that has counted to `count`, or a few more.
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

func until(isSo func() bool, what string) error {
	for end := time.Now().Add(wait); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("not so: " + what)
		}
	}
	return nil
}

func text(message pulsar.Message) string { return string(message.Payload()) }

// Sends messages one by one with a producer of their own.
func send(options pulsar.ProducerOptions, messages ...*pulsar.ProducerMessage) error {
	producer, err := client.CreateProducer(options)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, message := range messages {
		if _, err := producer.Send(context.Background(), message); err != nil {
			return err
		}
	}
	return nil
}
