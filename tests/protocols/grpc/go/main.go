// A round trip over bearlake.stream.v1 with stubs that were generated for Go:
//
//	program HOST:PORT STREAM COUNT
//
// creates the stream, writes COUNT records over ProduceStream, reads them with Fetch and prints "offset key value" lines.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	streamv1 "bearlake.tests/grpc_go/streamv1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	stream := os.Args[2]
	_, err = streamv1.NewAdminClient(connection).CreateStream(
		ctx, &streamv1.CreateStreamRequest{Name: stream, PartitionCount: 1})
	check(err)
	write(ctx, streamv1.NewProducerClient(connection), stream, count)
	read(ctx, streamv1.NewConsumerClient(connection), stream, count)
}

func write(ctx context.Context, producer streamv1.ProducerClient, stream string, count int) {
	id, err := producer.InitProducer(ctx, &streamv1.InitProducerRequest{})
	check(err)
	call, err := producer.ProduceStream(ctx)
	check(err)
	for at := 0; at < count; at++ {
		record := &streamv1.Record{Key: []byte("go"), Value: []byte(fmt.Sprintf("hello %d", at))}
		check(call.Send(&streamv1.ProduceStreamRequest{
			Stream:   stream,
			Payload:  &streamv1.Payload{Form: &streamv1.Payload_Records{Records: &streamv1.Records{Records: []*streamv1.Record{record}}}},
			Sequence: &streamv1.ProducerSequence{ProducerId: id.ProducerId, BaseSequence: int32(at)},
		}))
	}
	check(call.CloseSend())
	acknowledged := int64(0)
	for {
		answer, err := call.Recv()
		if err == io.EOF {
			break
		}
		check(err)
		acknowledged = answer.AcknowledgedCount
	}
	if acknowledged != int64(count) {
		log.Fatalf("%d of %d batches were acknowledged", acknowledged, count)
	}
}

func read(ctx context.Context, consumer streamv1.ConsumerClient, stream string, count int) {
	call, err := consumer.Fetch(ctx)
	check(err)
	start := &streamv1.Position{Stream: stream, Start: &streamv1.Position_Earliest{Earliest: true}}
	check(call.Send(&streamv1.FetchRequest{
		Assign: []*streamv1.Position{start},
		Credit: &streamv1.Credit{Bytes: 1 << 20, Messages: 1 << 20},
	}))
	for seen := 0; seen < count; {
		answer, err := call.Recv()
		check(err)
		for _, record := range answer.GetPayload().GetRecords().GetRecords() {
			fmt.Printf("%d %s %s\n", record.Offset, record.Key, record.Value)
			seen++
		}
	}
	check(call.CloseSend())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
