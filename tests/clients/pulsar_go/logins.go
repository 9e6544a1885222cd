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

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

// Logins: a line of standard input is an attempt, words with a tab between them: NAME URL AUTHORITY KIND SECRET ACTION TOPIC WAIT.
//
// AUTHORITY is the file of the certificates that the client trusts, or empty; KIND is token, basic (USER:PASSWORD), certificate
// (FILE:KEY_FILE) or none; ACTION is write or read; WAIT is the client's timeout in seconds. Says for each attempt NAME and ok, or NAME and the error. The first attempt goes alone, and
// the others after it at the same time, because the client retries a refused login until its timeout.
func logins(logger log.Logger) {
	attempts := bufio.NewScanner(os.Stdin)
	var group sync.WaitGroup
	for isFirst := true; attempts.Scan(); isFirst = false {
		words := strings.Split(attempts.Text(), "\t")
		group.Go(func() { fmt.Printf("%s\t%s\n", words[0], outcome(attempt(logger, words))) })
		if isFirst {
			group.Wait()
		}
	}
	group.Wait()
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func attempt(logger log.Logger, words []string) error {
	seconds, err := strconv.Atoi(words[7])
	if err != nil {
		return err
	}
	wait := time.Duration(seconds) * time.Second
	authentication, err := proof(words[3], words[4])
	if err != nil {
		return err
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: words[1], TLSTrustCertsFilePath: words[2], TLSValidateHostname: true, Authentication: authentication,
		OperationTimeout: wait, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	context, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if words[5] == "write" {
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: words[6]})
		if err != nil {
			return err
		}
		defer producer.Close()
		_, err = producer.Send(context, &pulsar.ProducerMessage{Payload: []byte("x")})
		return err
	}
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: words[6], StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return err
	}
	defer reader.Close()
	_, err = reader.Next(context)
	return err
}

func proof(kind, secret string) (pulsar.Authentication, error) {
	first, second, _ := strings.Cut(secret, ":")
	switch kind {
	case "token":
		return pulsar.NewAuthenticationToken(secret), nil
	case "certificate":
		return pulsar.NewAuthenticationTLS(first, second), nil
	case "basic":
		return pulsar.NewAuthenticationBasic(first, second)
	}
	return nil, nil
}
