"""Streams over HTTP with the Durable Streams protocol: /v1/stream/{name} and /v1/stream/{name}/{partition}.

| | |
|---|---|
| `PUT` | create, with a content type and optionally initial content, an expiry, or a source to fork |
| `POST` | append; `Producer-Id`, `Producer-Epoch`, `Producer-Seq` make retries safe on any server; `Stream-Closed: true` closes |
| `GET ?offset=` | read existing records; `live=long-poll` waits for more; `live=sse` follows the stream |
| `HEAD`, `DELETE` | get metadata; delete |

A stream is one partition; an append is a record (for JSON, one record per element); an offset is the record's offset in 20 digits.
Records written by Kafka or another protocol can be read here, and vice versa, but only values: the protocol has no keys or headers.

Source: Durable Streams Protocol 1.0 (ElectricSQL, 2026). Not supported: subscriptions, which are optional.
"""
