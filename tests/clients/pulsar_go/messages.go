package main

import (
	"bytes"
	"context"
	random "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

func fields() error {
	topic, sequence := topic("fields"), int64(9)
	consumer, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer consumer.Close()
	properties := map[string]string{"a": "1", "ü": "ö", "empty": ""}
	start := time.Now().Truncate(time.Millisecond)
	err = send(pulsar.ProducerOptions{Topic: topic, Name: "writer"}, &pulsar.ProducerMessage{
		Payload: []byte("value"), Key: "k", OrderingKey: "o", Properties: properties, EventTime: time.UnixMilli(1234), SequenceID: &sequence,
	})
	if err != nil {
		return err
	}
	message, err := next(consumer)
	if err != nil {
		return err
	}
	if message.PublishTime().Before(start) || message.PublishTime().After(time.Now()) {
		return fmt.Errorf("published at another time: %s", message.PublishTime())
	}
	found := fmt.Sprint(text(message), message.Key(), message.OrderingKey(), message.EventTime().UnixMilli(), message.ProducerName())
	return errors.Join(same(fmt.Sprint("value", "k", "o", int64(1234), "writer"), found), same(properties, message.Properties()))
}

func compression() error {
	topic := topic("compression")
	consumer, err := subscribe(topic, pulsar.Exclusive)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for _, kind := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD, pulsar.SNAPPY} {
		for _, isBatched := range []bool{false, true} {
			value := fmt.Sprint(kind, isBatched, strings.Repeat("value ", 1000))
			options := pulsar.ProducerOptions{Topic: topic, CompressionType: kind, DisableBatching: !isBatched}
			if err := errors.Join(send(options, &pulsar.ProducerMessage{Payload: []byte(value)}), expect(consumer, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A key pair made for this run, in PEM.
type keys struct{ private *rsa.PrivateKey }

func (k keys) PublicKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	encoded, err := x509.MarshalPKIXPublicKey(&k.private.PublicKey)
	return crypto.NewEncryptionKeyInfo(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded}), nil), err
}

func (k keys) PrivateKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	encoded := x509.MarshalPKCS1PrivateKey(k.private)
	return crypto.NewEncryptionKeyInfo(name, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: encoded}), nil), nil
}

// Messages that only clients can read: with the key as they were, without it as they are stored.
func encryption() error {
	topic := topic("encryption")
	private, err := rsa.GenerateKey(random.Reader, 2048)
	if err != nil {
		return err
	}
	for _, isBatched := range []bool{false, true} {
		options := pulsar.ProducerOptions{
			Topic: topic, DisableBatching: !isBatched, CompressionType: pulsar.LZ4,
			Encryption: &pulsar.ProducerEncryptionInfo{KeyReader: keys{private}, Keys: []string{"key"}},
		}
		if err := send(options, &pulsar.ProducerMessage{Payload: []byte("secret")}, &pulsar.ProducerMessage{Payload: []byte("more")}); err != nil {
			return err
		}
	}
	wanted := options(topic, pulsar.Shared)
	wanted.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: keys{private}}
	knowing, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer knowing.Close()
	if err := errors.Join(expect(knowing, "secret", "more", "secret", "more"), hasNoMore(knowing)); err != nil {
		return err
	}
	wanted.SubscriptionName = "other"
	wanted.Decryption = &pulsar.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume}
	other, err := client.Subscribe(wanted)
	if err != nil {
		return err
	}
	defer other.Close()
	message, err := next(other)
	if err != nil {
		return err
	}
	if bytes.Contains(message.Payload(), []byte("secret")) {
		return errors.New("it is readable")
	}
	context := message.GetEncryptionContext()
	if context == nil || len(context.Keys) != 1 {
		return errors.New("its key has no name")
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
