// Drives franz-go's registry client against a registry.
//
//	franz_go_registry URL      prints "ok" when every step gave what it must
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	order  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	wider  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"zone","type":"string","default":"eu"}]}`
	broken = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"zone","type":"string"}]}`
	base   = "syntax = \"proto3\";\nmessage Base {}\n"
	user   = "syntax = \"proto3\";\nimport \"base.proto\";\nmessage User {\n  Base base = 1;\n}\n"
)

func must[T any](value T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	return value
}

func equal(got, want any) {
	if !reflect.DeepEqual(got, want) {
		fail("got %v, want %v", got, want)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))

	first := must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: order}))
	equal(first.Version, 1)
	equal(must(client.SchemaByID(ctx, first.ID)).Schema, order)
	equal(must(client.LookupSchema(ctx, "go-value", sr.Schema{Schema: order})).ID, first.ID)
	equal(must(client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: broken})).Is, false)
	if _, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: broken}); err == nil {
		fail("an incompatible schema was taken")
	}
	equal(must(client.CreateSchema(ctx, "go-value", sr.Schema{Schema: wider})).Version, 2)
	equal(must(client.SubjectVersions(ctx, "go-value")), []int{1, 2})
	equal(len(must(client.Schemas(ctx, "go-value"))), 2)

	must(client.CreateSchema(ctx, "base", sr.Schema{Schema: base, Type: sr.TypeProtobuf}))
	reference := sr.SchemaReference{Name: "base.proto", Subject: "base", Version: 1}
	made := must(client.CreateSchema(ctx, "user", sr.Schema{
		Schema: user, Type: sr.TypeProtobuf, References: []sr.SchemaReference{reference},
	}))
	equal(made.References, []sr.SchemaReference{reference})
	equal(len(must(client.SchemaReferences(ctx, "base", 1))), 1)

	equal(client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "go-value")[0].Level, sr.CompatFullTransitive)
	equal(client.Compatibility(ctx, "go-value")[0].Level, sr.CompatFullTransitive)
	equal(client.SetMode(ctx, sr.ModeReadOnly, "go-value")[0].Mode, sr.ModeReadOnly)
	equal(client.ResetMode(ctx, "go-value")[0].Err, nil)
	equal(must(client.Subjects(ctx)), []string{"base", "go-value", "user"})
	equal(must(client.DeleteSubject(ctx, "go-value", sr.SoftDelete)), []int{1, 2})
	equal(must(client.DeleteSubject(ctx, "go-value", sr.HardDelete)), []int{1, 2})
	equal(len(must(client.SupportedTypes(ctx))), 3)
	fmt.Println("ok")
}
