"""The schema registry over HTTP, compatible with clients of Confluent's registry.

| path | |
|---|---|
| `GET /schemas/ids/{id}`, `…/schema`, `…/subjects`, `…/versions` | a schema by id; its subjects and versions |
| `GET /schemas/guids/{guid}`, `…/ids` | a schema by guid |
| `GET /schemas`, `GET /schemas/types` | all schemas, one page; the formats |
| `GET /subjects` | names, one page |
| `POST /subjects/{subject}` | look up a schema |
| `GET, POST /subjects/{subject}/versions` | list version numbers; register a schema |
| `GET /subjects/{subject}/versions/{version}`, `…/schema`, `…/referencedby` | one version, or `latest` |
| `GET /subjects/{subject}/metadata` | the latest version with the given metadata |
| `DELETE /subjects/{subject}`, `…/versions/{version}` | delete softly, then permanently with `?permanent=true` |
| `POST /compatibility/subjects/{subject}/versions`, `…/{version}` | check compatibility |
| `GET, PUT, DELETE /config`, `/config/{subject}`, `/mode`, `/mode/{subject}` | settings of the registry or a subject |
| `GET /contexts`, `/contexts/{context}/…` | list contexts; any path above inside a context |

All answers are JSON; an error is `{"error_code": …, "message": …}`. `application.py` builds the application (`build_application`).

Source: Confluent, "Schema Registry API Reference" (public documentation).
"""
