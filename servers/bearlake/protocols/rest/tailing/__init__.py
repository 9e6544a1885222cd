"""Streams over HTTP as the Durable Streams protocol has them: /v1/stream/{name} and /v1/stream/{name}/{partition}.

| | |
|---|---|
| `PUT` | create, with a content type and, if wanted, first content, an end of life, or a source to fork |
| `POST` | append; `Producer-Id`, `Producer-Epoch`, `Producer-Seq` make a retry harmless on any server; `Stream-Closed: true` closes |
| `GET ?offset=` | read what is there; `live=long-poll` waits for more; `live=sse` follows |
| `HEAD`, `DELETE` | look, delete |

A stream is one partition, an append is a record (of JSON: one per element), an offset is its number in 20 digits. What was written by
Kafka or any other protocol is read here, and the other way round: values only, since the protocol has neither keys nor headers.

Source: Durable Streams Protocol 1.0 (ElectricSQL, 2026). Not spoken: subscriptions, which are optional.
"""
