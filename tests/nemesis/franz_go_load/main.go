// An idempotent producer of franz-go, driven by lines: see ../clients/programs.py.
//
//	franz_go BOOTSTRAP TOPIC CLIENT_ID
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.DefaultProduceTopic(os.Args[2]), kgo.ClientID(os.Args[3]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Minute),
		kgo.MetadataMaxAge(10*time.Second), kgo.ProduceRequestTimeout(10*time.Second),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var output sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		partition, _ := strconv.Atoi(words[1])
		timestamp, _ := strconv.ParseInt(words[2], 10, 64)
		record := &kgo.Record{
			Partition: int32(partition), Timestamp: time.UnixMilli(timestamp), Key: []byte(words[3]), Value: []byte(words[4]),
		}
		client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			output.Lock()
			defer output.Unlock()
			if err != nil {
				fmt.Println("error", words[0], strings.ReplaceAll(err.Error(), "\n", " "))
				return
			}
			fmt.Println("ok", words[0], sent.Offset)
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_ = client.Flush(ctx)
}
