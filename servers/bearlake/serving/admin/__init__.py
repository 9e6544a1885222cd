"""The admin API of every server process: HTTP and JSON, for people, the operator and Prometheus.

| path | |
|---|---|
| `GET /healthz` | checks that the metadata store and the event loop answer, and that the stores take writes; 200 or 503 |
| `GET /readyz` | 200 while the server takes work, 503 before and while draining |
| `GET /metrics` | Prometheus' text format |
| `GET /v1/streams?prefix=&after=&limit=` | streams by name, one page |
| `POST /v1/streams` | create: `{"streams": [{"name", "partition_count", "configs"}]}` |
| `PATCH /v1/streams` | alter: `{"streams": [{"name", "partition_count", "set", "unset"}]}` |
| `DELETE /v1/streams?name=a&name=b` | delete |
| `DELETE /v1/streams` | delete: `{"streams": [{"name", "id"}]}`; with an `id`, only the stream with that id |
| `GET /v1/streams/{name}` | one stream |
| `GET /v1/streams/{name}/partitions?after=&limit=` | its partitions with offsets and sizes, one page |
| `GET /v1/access?resource=&name=&principal=&after=&limit=` | access rules with their revision, one page |
| `POST /v1/access` | create access rules, all or none: `{"rules": [{"resource", "name", …}], "revision"}` |
| `DELETE /v1/access` | delete these access rules, all or none: the same body |
| `GET /v1/compaction/backlog?limit=&streams=a*&streams=b` | bytes, records and seconds that wait for compaction, in total and per stream |
| `GET /v1/compaction/commits?limit=&streams=` | how often and when last streams were compacted or merged, in total and per stream |
| `GET /v1/compaction/tasks?stream=&after=&limit=` | tasks by id, one page: waiting, running, quarantined (with the error) |
| `POST /v1/compaction/tasks/{id}/retry` | allow a quarantined task to run again |
| `GET /v1/servers` | live servers |
| `GET /openapi.json`, `GET /docs` | this API as an OpenAPI document, and as a page |
| `GET /v1/config` | all settings with unit, source and meaning |

Changes of streams come in batches: the response has one result per item, in order, each with its own `status`. The response's status is
200 if all items succeeded, else 207. Access rules change all or none. Errors are problem documents (RFC 9457). If the API is reachable
from other machines, every path except `/livez`, `/healthz` and `/readyz` requires the bearer token (RFC 6750), or the login of a super
user: a password, a token of the issuer, or with TLS a client certificate.
"""
