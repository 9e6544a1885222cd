package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

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
	// The protocol's times are whole milliseconds: what is left of one is cut off.
	if err = errors.Join(err, expect(consumer, "1", "0")); err == nil && time.Since(start) < 1499*time.Millisecond {
		err = fmt.Errorf("delivered after %s", time.Since(start))
	}
	return err
}

// The consumer that is active for each partition.
type actives struct {
	lock  sync.Mutex
	names map[int32]string
}

func (a *actives) BecameActive(consumer pulsar.Consumer, _ string, partition int32) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.names[partition] = consumer.Name()
}
func (a *actives) BecameInactive(pulsar.Consumer, string, int32) {}

func (a *actives) areDivided() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	consumers := map[string]bool{}
	for _, name := range a.names {
		consumers[name] = true
	}
	return len(a.names) == 3 && len(consumers) == 2
}

// Two consumers divide three partitions, each of which one of them has in order; when one goes, the other has all.
func failoverPartitions() error {
	topic, active := topic("failover-partitions"), &actives{names: map[int32]string{}}
	consumers := []pulsar.Consumer{}
	for _, name := range []string{"one", "two"} {
		wanted := options(topic, pulsar.Failover)
		wanted.Name, wanted.EventListener = name, active
		consumer, err := client.Subscribe(wanted)
		if err != nil {
			return err
		}
		consumers = append(consumers, consumer)
	}
	if err := until(active.areDivided, "both are active"); err != nil {
		return err
	}
	owners, last, wrong := map[string]int{}, map[string]int{}, error(nil)
	take := func(at int, message pulsar.Message) bool {
		number, _ := strconv.Atoi(text(message))
		owner, isKnown := owners[message.Topic()]
		if isKnown && (owner != at || last[message.Topic()] >= number) {
			wrong = fmt.Errorf("%d of %s came to %d behind %d", number, message.Topic(), at, last[message.Topic()])
		}
		owners[message.Topic()], last[message.Topic()] = at, number
		return consumers[at].Ack(message) == nil
	}
	err := errors.Join(fill(topic, 60, true), takeAll(consumers, 60, take), same(3, len(owners)))
	consumers[0].Close()
	consumers, owners = consumers[1:], map[string]int{}
	err = errors.Join(err, fill(topic, 60, true), takeAll(consumers, 60, take), hasNoMore(consumers[0]))
	consumers[0].Close()
	return errors.Join(err, wrong)
}

func batchIndexAcknowledgement() error {
	topic := topic("batch-index")
	if err := fill(topic, 10, true); err != nil {
		return err
	}
	wanted := options(topic, pulsar.Shared)
	wanted.EnableBatchIndexAcknowledgment, wanted.AckWithResponse = true, true
	first, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	for _, value := range numbers(0, 10) {
		message, err := next(first)
		if err == nil {
			err = same(value, text(message))
		}
		if err == nil && (value[0]-'0')%2 == 0 {
			err = first.Ack(message)
		}
		if err != nil {
			return err
		}
	}
	first.Close()
	second, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer second.Close()
	return errors.Join(expect(second, "1", "3", "5", "7", "9"), hasNoMore(second))
}

func retryLetters() error {
	topic := topic("retried")
	if err := fill(topic, 1, false); err != nil {
		return err
	}
	wanted := options(topic, pulsar.Shared)
	wanted.RetryEnable = true
	wanted.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2, RetryLetterTopic: topic + "-again", DeadLetterTopic: topic + "-letters"}
	consumer, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer consumer.Close()
	first, err := next(consumer)
	if err != nil {
		return err
	}
	consumer.ReconsumeLater(first, 300*time.Millisecond)
	again, err := next(consumer)
	if err != nil {
		return err
	}
	if err := errors.Join(same(topic+"-again", again.Topic()), same("1", again.Properties()[pulsar.SysPropertyReconsumeTimes])); err != nil {
		return err
	}
	consumer.ReconsumeLater(again, 300*time.Millisecond)
	last, err := next(consumer)
	if err != nil {
		return err
	}
	consumer.ReconsumeLater(last, 300*time.Millisecond)
	dead, err := subscribe(topic+"-letters", pulsar.Shared)
	if err != nil {
		return err
	}
	defer dead.Close()
	return expect(dead, "0")
}
