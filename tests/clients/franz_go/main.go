// Drives the franz-go client for the tests: JSON lines in, JSON lines out.
//
//	franz_go BOOTSTRAP create TOPIC PARTITIONS
//	franz_go BOOTSTRAP produce TOPIC none|gzip|snappy|lz4|zstd  < messages
//	franz_go BOOTSTRAP consume TOPIC GROUP COUNT                > messages
//	franz_go BOOTSTRAP steps TOPIC  < bursts of values, a line each; each outcome is a line: VALUE OFFSET, or VALUE error TEXT
//	franz_go BOOTSTRAP transactions TOPIC GROUP  (see transactions.go)
//
// KAFKA_SASL: "MECHANISM USER SECRET" logs in; the secret of OAUTHBEARER is a token. Standard error says when the server throttles the client.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeout = 50 * time.Second

// message is one record; encoding/json spells []byte in base64 and nil as null.
type message struct {
	Key     []byte   `json:"key"`
	Value   []byte   `json:"value"`
	Headers [][2]any `json:"headers"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bootstrap, command string, args []string) error {
	switch command {
	case "create":
		return create(ctx, bootstrap, args[0], args[1])
	case "produce":
		return produce(ctx, bootstrap, args[0], args[1])
	case "consume":
		return consume(ctx, bootstrap, args[0], args[1], args[2])
	case "transactions":
		return transactions(ctx, bootstrap, args[0], args[1])
	case "steps":
		return steps(ctx, bootstrap, args[0])
	}
	return fmt.Errorf("unknown command %s", command)
}

// throttled says on standard error that the server asks the client to wait.
type throttled struct{}

func (throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	fmt.Fprintln(os.Stderr, "throttled for", interval)
}

// login returns how the client logs in: not at all without KAFKA_SASL.
func login() kgo.Opt {
	words := strings.SplitN(os.Getenv("KAFKA_SASL"), " ", 3)
	if len(words) < 3 {
		return kgo.SASL()
	}
	user, secret := words[1], words[2]
	switch words[0] {
	case "SCRAM-SHA-256":
		return kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha256Mechanism())
	case "SCRAM-SHA-512":
		return kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha512Mechanism())
	case "OAUTHBEARER":
		return kgo.SASL(oauth.Auth{Token: secret}.AsMechanism())
	}
	return kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism())
}

func create(ctx context.Context, bootstrap, topic, partitions string) error {
	count, err := strconv.Atoi(partitions)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), login())
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, int32(count), 1
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].ErrorCode)
}

func produce(ctx context.Context, bootstrap, topic, compression string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), login(), kgo.WithHooks(throttled{}), kgo.ProducerBatchCompression(codecs[compression]),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line message
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		headers, err := toHeaders(line.Headers)
		if err != nil {
			return err
		}
		records = append(records, &kgo.Record{Topic: topic, Key: line.Key, Value: line.Value, Headers: headers})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// steps is an idempotent producer that sends the values of a burst in a batch each, without waiting for answers.
func steps(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), login(), kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		for _, value := range strings.Fields(lines.Text()) {
			client.Produce(ctx, kgo.StringRecord(value), func(record *kgo.Record, err error) {
				if err != nil {
					fmt.Println(string(record.Value), "error", err)
				} else {
					fmt.Println(string(record.Value), record.Offset)
				}
			})
			time.Sleep(40 * time.Millisecond)
		}
	}
	return client.Flush(ctx)
}

// toHeaders turns pairs of a name and a base64 text or null into record headers.
func toHeaders(pairs [][2]any) ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range pairs {
		header := kgo.RecordHeader{Key: pair[0].(string)}
		if text, ok := pair[1].(string); ok {
			if err := json.Unmarshal([]byte(strconv.Quote(text)), &header.Value); err != nil {
				return nil, err
			}
		}
		headers = append(headers, header)
	}
	return headers, nil
}

func consume(ctx context.Context, bootstrap, topic, group, wanted string) error {
	count, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), login(), kgo.WithHooks(throttled{}), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	output := json.NewEncoder(os.Stdout)
	for count > 0 {
		fetches := client.PollRecords(ctx, count)
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for _, record := range records {
			line := message{Key: record.Key, Value: record.Value, Headers: [][2]any{}}
			for _, header := range record.Headers {
				line.Headers = append(line.Headers, [2]any{header.Key, header.Value})
			}
			if err := output.Encode(line); err != nil {
				return err
			}
		}
		count -= len(records)
		if err := client.CommitRecords(ctx, records...); err != nil {
			return err
		}
	}
	return client.LeaveGroupContext(ctx)
}
