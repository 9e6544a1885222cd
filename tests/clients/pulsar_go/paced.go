package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// Paced: `pulsar_go paced URL TOPIC SIZE…` sends a message of each size, without waiting for receipts, and reads them all.
//
// A message is its number, a space and filling. Says `sent` when all receipts have come, and then NUMBER SIZE for each message that it reads.
func paced(logger log.Logger) error {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[2], Logger: logger})
	if err != nil {
		return err
	}
	defer client.Close()
	topic, sizes := os.Args[3], os.Args[4:]
	if err := sendPaced(client, topic, sizes); err != nil {
		return err
	}
	fmt.Println("sent")
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return err
	}
	defer reader.Close()
	context, cancel := within(time.Minute)
	defer cancel()
	for range sizes {
		message, err := reader.Next(context)
		if err != nil {
			return err
		}
		number, _, _ := strings.Cut(string(message.Payload()), " ")
		fmt.Println(number, len(message.Payload()))
	}
	return nil
}

func sendPaced(client pulsar.Client, topic string, sizes []string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	failed := make(chan error, len(sizes))
	for number, text := range sizes {
		size, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		begin := fmt.Sprintf("%d ", number)
		message := &pulsar.ProducerMessage{Payload: []byte(begin + strings.Repeat("x", size-len(begin)))}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			failed <- err
		})
	}
	for range sizes {
		err = errors.Join(err, <-failed)
	}
	return err
}
