"""The schema registry over HTTP, as clients of Confluent's registry know it.

| path | |
|---|---|
| `GET /schemas/ids/{id}`, `…/schema`, `…/subjects`, `…/versions` | a schema by id; who uses it |
| `GET /schemas/guids/{guid}`, `…/ids` | a schema by guid |
| `GET /schemas`, `GET /schemas/types` | all schemas, one page; the formats |
| `GET /subjects` | names, one page |
| `POST /subjects/{subject}` | look a schema up |
| `GET, POST /subjects/{subject}/versions` | numbers; register a schema |
| `GET /subjects/{subject}/versions/{version}`, `…/schema`, `…/referencedby` | one version, or `latest` |
| `GET /subjects/{subject}/metadata` | the latest version with certain metadata |
| `DELETE /subjects/{subject}`, `…/versions/{version}` | softly, then `?permanent=true` |
| `POST /compatibility/subjects/{subject}/versions`, `…/{version}` | would it be compatible? |
| `GET, PUT, DELETE /config`, `/config/{subject}`, `/mode`, `/mode/{subject}` | what holds for the registry or a subject |
| `GET /contexts`, `/contexts/{context}/…` | contexts; any of the above, inside one |

Every answer is JSON, errors are `{"error_code": …, "message": …}`. `build_application` in `application.py` makes it.

Source: Confluent, "Schema Registry API Reference" (public documentation).
"""
