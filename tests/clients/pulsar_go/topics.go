package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// A topic that is there, one that comes later, and one that does not fit.
func pattern() error {
	for _, name := range []string{"pattern-there", "patterns"} {
		if err := fill(topic(name), 1, false); err != nil {
			return err
		}
	}
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		TopicsPattern: "persistent://public/default/" + run + "-pattern-.*", SubscriptionName: "s", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AutoDiscoveryPeriod: time.Second,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	return errors.Join(expect(consumer, "0"), fill(topic("pattern-later"), 1, false), expect(consumer, "0"), hasNoMore(consumer))
}

func severalTopics() error {
	topics, found := []string{topic("several-one"), topic("several-two")}, map[string]int{}
	for _, each := range topics {
		if err := fill(each, 10, true); err != nil {
			return err
		}
	}
	wanted := options("", pulsar.Shared)
	wanted.Topics = topics
	consumer, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer consumer.Close()
	err = takeAll([]pulsar.Consumer{consumer}, 20, func(_ int, message pulsar.Message) bool {
		found[message.Topic()]++
		return consumer.Ack(message) == nil
	})
	return errors.Join(err, same(map[string]int{topics[0]: 10, topics[1]: 10}, found), hasNoMore(consumer))
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
