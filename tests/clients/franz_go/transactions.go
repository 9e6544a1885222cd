package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions goes through the transactions of the client, from beginning to end, and prints what each step shows.
// The topic is empty and has two partitions.
func transactions(ctx context.Context, bootstrap, topic, group string) error {
	copier, err := transactional(bootstrap, topic, "franz")
	if err != nil {
		return err
	}
	defer copier.Close()
	if err := write(ctx, copier, "a0", "a1"); err != nil {
		return err
	}
	show("open", read(ctx, bootstrap, topic, kgo.ReadCommitted()))
	if err := copier.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	if err := write(ctx, copier, "b0", "b1"); err != nil {
		return err
	}
	if err := copier.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	show("committed", read(ctx, bootstrap, topic, kgo.ReadCommitted()))
	show("everything", read(ctx, bootstrap, topic, kgo.ReadUncommitted()))
	if err := copyInGroup(ctx, bootstrap, topic, group); err != nil {
		return err
	}
	if err := write(ctx, copier, "c0"); err != nil {
		return err
	}
	next, err := transactional(bootstrap, topic, "franz")
	if err != nil {
		return err
	}
	defer next.Close()
	if err := write(ctx, next, "d0"); err != nil {
		return err
	}
	err = copier.EndTransaction(ctx, kgo.TryCommit)
	isFenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	show("fenced", []string{fmt.Sprint(isFenced)})
	if err := next.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	show("at the end", read(ctx, bootstrap, topic, kgo.ReadCommitted()))
	return nil
}

func transactional(bootstrap, topic, id string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(bootstrap), login(), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func write(ctx context.Context, client *kgo.Client, values ...string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for partition, value := range values {
		records = append(records, &kgo.Record{Partition: int32(partition), Value: []byte(value)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// copyInGroup reads committed records as a member of the group, and writes copies in the transaction that has the offsets.
func copyInGroup(ctx context.Context, bootstrap, topic, group string) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), login(), kgo.TransactionalID("franz-copier"),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer session.Close()
	var found []string
	for len(found) < 2 {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found = append(found, string(record.Value))
			session.Produce(ctx, kgo.StringRecord("copy of "+string(record.Value)), func(*kgo.Record, error) {})
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if !committed {
			return errors.New("the transaction of the group did not commit")
		}
	}
	show("copied", found[:2])
	return nil
}

// quiet is how long a reader waits for more values: it cannot ask for the end that its isolation level shows.
const quiet = 3 * time.Second

// read returns the values that the isolation level shows.
func read(ctx context.Context, bootstrap, topic string, isolation kgo.IsolationLevel) []string {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), login(), kgo.FetchIsolationLevel(isolation), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		return []string{err.Error()}
	}
	defer client.Close()
	var values []string
	for isOver := false; !isOver; {
		until, cancel := context.WithTimeout(ctx, quiet)
		fetches := client.PollFetches(until)
		isOver = until.Err() != nil
		cancel()
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				values = append(values, string(record.Value))
			}
		})
	}
	return values
}

func show(step string, values []string) {
	sort.Strings(values)
	fmt.Println(step + ": " + strings.Join(values, ", "))
}
