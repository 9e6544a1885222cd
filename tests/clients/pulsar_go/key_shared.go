package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"
)

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

func sticky(topic string, ranges ...int) (pulsar.Consumer, error) {
	policy, err := pulsar.NewKeySharedPolicySticky(ranges)
	if err != nil {
		return nil, err
	}
	wanted := options(topic, pulsar.KeyShared)
	wanted.KeySharedPolicy = policy
	return client.Subscribe(wanted)
}

func keySharedSticky() error {
	topic := topic("sticky")
	low, err := sticky(topic, 0, 32767)
	if err != nil {
		return err
	}
	defer low.Close()
	high, err := sticky(topic, 32768, 65535)
	if err != nil {
		return err
	}
	defer high.Close()
	if other, err := sticky(topic, 100, 200); err == nil {
		other.Close()
		return errors.New("overlapping ranges were accepted")
	}
	if err := fill(topic, 28, false); err != nil {
		return err
	}
	owners, wrong := map[string]int{}, error(nil)
	err = takeAll([]pulsar.Consumer{low, high}, 28, func(at int, message pulsar.Message) bool {
		if owner, isKnown := owners[message.Key()]; isKnown && owner != at {
			wrong = fmt.Errorf("%s went to both", message.Key())
		}
		owners[message.Key()] = at
		return []pulsar.Consumer{low, high}[at].Ack(message) == nil
	})
	return errors.Join(err, wrong, same(7, len(owners)))
}

const changingKeyCount = 30

// What came of each key: how many, and the first that came instead of the one due.
type keyOrder struct {
	due   [changingKeyCount]int
	taken int
	wrong error
}

func (o *keyOrder) take(message pulsar.Message) {
	number, _ := strconv.Atoi(text(message))
	key := number % changingKeyCount
	if due := key + o.due[key]*changingKeyCount; due != number && o.wrong == nil {
		o.wrong = fmt.Errorf("%d came when %d was due", number, due)
	}
	o.due[key]++
	o.taken++
}

// Consumers come and go under load: no key skips, repeats or exchanges a message. One that goes leaves its last message, and whatever
// it had not looked at, to the others.
func keySharedChanging() error {
	const roundCount, perRound = 20, 100
	topic, order := topic("changing"), &keyOrder{}
	wanted := options(topic, pulsar.KeyShared)
	wanted.ReceiverQueueSize = 20
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	consumers := []pulsar.Consumer{}
	for range 2 {
		consumer, err := client.Subscribe(wanted)
		if err != nil {
			return err
		}
		consumers = append(consumers, consumer)
	}
	take := func(at int, message pulsar.Message) bool {
		order.take(message)
		return consumers[at].Ack(message) == nil
	}
	for round := range roundCount {
		for number := round * perRound; number < (round+1)*perRound; number++ {
			message := &pulsar.ProducerMessage{
				Payload: []byte(strconv.Itoa(number)), Key: fmt.Sprintf("key-%d", number%changingKeyCount),
			}
			producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		if round%2 == 0 {
			consumer, err := client.Subscribe(wanted)
			if err != nil {
				return err
			}
			consumers = append(consumers, consumer)
		} else {
			leaving, cancel := within(quiet)
			_, _ = consumers[0].Receive(leaving) // and acknowledges it not
			cancel()
			consumers[0].Close()
			consumers = consumers[1:]
		}
		if err := takeAll(consumers, perRound/2, take); err != nil {
			return err
		}
	}
	err = errors.Join(takeAll(consumers, roundCount*perRound-order.taken, take), order.wrong)
	for _, each := range consumers {
		err = errors.Join(err, hasNoMore(each))
		each.Close()
	}
	return err
}
