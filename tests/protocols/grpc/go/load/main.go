// Load over bearlake.stream.v1 with stubs that were generated for Go:
//
//	program HOST:PORT,HOST:PORT STREAM
//
// produces to partition 0 (unary calls and ProduceStream) and reads it (Fetch), each in an endless loop, until its standard input ends.
// A call that gets Drain is closed, and the next one opened. Then it prints, a line each:
//
//	acknowledged PRODUCER NUMBER OFFSET
//	read OFFSET VALUE
//	status CODE MESSAGE           of every call that did not end with OK
//	drain                         of every call that was told to go
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	streamv1 "bearlake.tests/grpc_go/streamv1"
)

const window = 16

type load struct {
	stream   string
	producer streamv1.ProducerClient
	consumer streamv1.ConsumerClient
	stopping chan struct{}
	mutex    sync.Mutex
	lines    []string
}

func main() {
	servers := manual.NewBuilderWithScheme("servers")
	addresses := []resolver.Address{}
	for _, address := range strings.Split(os.Args[1], ",") {
		addresses = append(addresses, resolver.Address{Addr: address})
	}
	servers.InitialState(resolver.State{Addresses: addresses})
	connection, err := grpc.NewClient("servers:///", grpc.WithResolvers(servers),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	all := &load{
		stream:   os.Args[2],
		producer: streamv1.NewProducerClient(connection),
		consumer: streamv1.NewConsumerClient(connection),
		stopping: make(chan struct{}),
	}
	var running sync.WaitGroup
	for _, work := range []func(){
		func() { all.unary("go-unary-0") },
		func() { all.unary("go-unary-1") },
		func() { all.streams("go-stream") },
		all.reads,
	} {
		running.Add(1)
		go func() { defer running.Done(); work() }()
	}
	fmt.Println("started")
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(all.stopping)
	running.Wait()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, line := range all.lines {
		fmt.Fprintln(out, line)
	}
}

func (all *load) say(format string, values ...any) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	all.lines = append(all.lines, fmt.Sprintf(format, values...))
}

func (all *load) isStopping() bool {
	select {
	case <-all.stopping:
		return true
	default:
		return false
	}
}

func (all *load) failed(err error) bool {
	if err == nil || err == io.EOF {
		return false
	}
	all.say("status %s %s", status.Code(err), strings.ReplaceAll(status.Convert(err).Message(), "\n", " "))
	time.Sleep(50 * time.Millisecond)
	return true
}

func payload(name string, number int) *streamv1.Payload {
	record := &streamv1.Record{Value: []byte(fmt.Sprintf("%s.%d.0", name, number))}
	return &streamv1.Payload{Form: &streamv1.Payload_Records{Records: &streamv1.Records{Records: []*streamv1.Record{record}}}}
}

// One record per call.
func (all *load) unary(name string) {
	for number := 0; !all.isStopping(); number++ {
		answer, err := all.producer.Produce(context.Background(),
			&streamv1.ProduceRequest{Stream: all.stream, Payload: payload(name, number)})
		if !all.failed(err) {
			all.say("acknowledged %s %d %d", name, number, answer.BaseOffset)
		}
	}
}

// A call after the other, with some batches under way.
func (all *load) streams(name string) {
	for number := 0; !all.isStopping(); {
		call, err := all.producer.ProduceStream(context.Background())
		if all.failed(err) {
			continue
		}
		first, sent, acknowledged, isOpen := number, number, number, true
		send := func() {
			for isOpen && sent < acknowledged+window {
				if call.Send(&streamv1.ProduceStreamRequest{Stream: all.stream, Payload: payload(name, sent)}) != nil {
					isOpen = false // what is wrong is told by Recv
					return
				}
				sent++
			}
		}
		send()
		for {
			answer, err := call.Recv()
			if err != nil {
				all.failed(err)
				break
			}
			for _, offset := range answer.BaseOffsets {
				all.say("acknowledged %s %d %d", name, acknowledged, offset)
				acknowledged++
			}
			if answer.Drain != nil {
				all.say("drain")
			}
			if isOpen && (answer.Drain != nil || all.isStopping()) {
				isOpen = false
				_ = call.CloseSend()
			}
			send()
		}
		if sent != acknowledged {
			all.say("status OK but %d of %d batches were acknowledged", acknowledged-first, sent-first)
		}
		number = sent
	}
}

// Everything from the start.
func (all *load) reads() {
	for next := int64(0); !all.isStopping(); {
		call, err := all.consumer.Fetch(context.Background())
		if all.failed(err) {
			continue
		}
		start := &streamv1.Position{Stream: all.stream, Start: &streamv1.Position_Offset{Offset: next}}
		_ = call.Send(&streamv1.FetchRequest{
			Assign: []*streamv1.Position{start},
			Credit: &streamv1.Credit{Bytes: 1 << 40, Messages: 1 << 30},
		})
		ended := make(chan struct{})
		go func() {
			select {
			case <-all.stopping:
				_ = call.CloseSend()
			case <-ended:
			}
		}()
		for {
			answer, err := call.Recv()
			if err != nil {
				all.failed(err)
				break
			}
			if answer.Drain != nil {
				all.say("drain")
				_ = call.CloseSend()
			}
			for _, record := range answer.GetPayload().GetRecords().GetRecords() {
				all.say("read %d %s", record.Offset, record.Value)
				next = record.Offset + 1
			}
		}
		close(ended)
	}
}
