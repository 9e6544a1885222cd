"""Parameters and responses of the admin API's routes, for its OpenAPI document: one entry per method and path.

A process has a subset of these routes: servers have those of streams; servers with consumer groups have those of groups.
"""

from collections.abc import Mapping

from bearlake.serving.admin import models, problems
from bearlake.serving.http.openapi.model import INDEX, Description, Operation, Schema

JSON = "application/json"
_ANY_OBJECT: Schema = {"type": "object"}
_FAILED = (400, 401, 403, 404, 500, 503)
_WRITE = (400, 401, 403, 409, 413, 500, 503)


def _get(*parameters: Schema, answer: object = _ANY_OBJECT) -> Operation:
    return Operation((200,), _FAILED, (JSON,), parameters=parameters, answer=answer)


def _batch(body: object, *parameters: Schema) -> Operation:
    is_required = not parameters
    return Operation((200, 207), _WRITE, (JSON,), {JSON: body}, is_required, parameters, models.Results)


def _rules() -> Operation:
    return Operation((200,), _WRITE, (JSON,), {JSON: models.RuleChange}, answer=models.RulesChanged)


def _between_servers() -> Operation:
    """A request of another server about groups; 202: repeat the request, 409: refused, 412: the sender's view is outdated."""
    return Operation((200, 202), (400, 401, 403, 404, 409, 412, 413, 500, 503), (JSON,), {JSON: _ANY_OBJECT})


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/livez"): _get(),
    ("GET", "/healthz"): _get(),
    ("GET", "/readyz"): _get(),
    ("GET", "/metrics"): Operation((200,), _FAILED, ("text/plain",)),
    ("GET", "/v1/servers"): _get(),
    ("GET", "/v1/config"): _get(),
    ("GET", "/v1/streams"): _get(*models.STREAM_PAGE.parameters()),
    ("POST", "/v1/streams"): _batch(models.Batch[models.NewStream]),
    ("PATCH", "/v1/streams"): _batch(models.Batch[models.StreamChange]),
    ("DELETE", "/v1/streams"): _batch(models.Batch[models.StreamToDelete], *models.STREAM_NAMES.parameters()),
    ("GET", "/v1/streams/{name}"): _get(answer=models.Stream),
    ("GET", "/v1/streams/{name}/partitions"): _get(*models.PARTITION_PAGE.parameters()),
    ("GET", "/v1/access"): _get(*models.ACCESS_PAGE.parameters(), answer=models.RulePage),
    ("POST", "/v1/access"): _rules(),
    ("DELETE", "/v1/access"): _rules(),
    ("GET", "/v1/access/decisions"): _get(*models.DECISION.parameters(), answer=models.Decided),
    ("GET", "/v1/users"): _get(*models.USER_PAGE.parameters()),
    ("GET", "/v1/compaction/backlog"): _get(*models.COMPACTION_PAGE.parameters()),
    ("GET", "/v1/compaction/commits"): _get(*models.COMPACTION_PAGE.parameters()),
    ("GET", "/v1/compaction/tasks"): _get(*models.TASK_PAGE.parameters()),
    ("POST", "/v1/compaction/tasks/{id}/retry"): _get(),
    ("GET", "/v1/groups"): _get(*models.GROUP_PAGE.parameters()),
    ("GET", "/v1/transactions"): _get(*models.TRANSACTION_PAGE.parameters()),
    ("GET", "/v1/transactions/description"): _get(*models.TRANSACTION_NAME.parameters()),
    ("POST", "/v1/transactions/abort"): Operation(
        (200,), _WRITE, (JSON,), {JSON: models.TransactionToAbort}, answer=_ANY_OBJECT
    ),
    **{
        ("POST", f"/v1/groups/{name}"): _between_servers()
        for name in ("join", "sync", "heartbeat", "leave", "commit", "delete", "describe")
    },
    **{
        ("POST", f"/v1/shares/{name}"): _between_servers()
        for name in ("acquire", "acknowledge", "release", "give_back", "reset", "forget", "seek")
    },
    ("GET", "/openapi.json"): _get(),
    ("GET", "/docs"): Operation((200,), _FAILED, ("text/html",)),
}
"""Every route that a process may have."""

DESCRIPTION = Description("Bearlake admin", OPERATIONS, {"id": INDEX}, (problems.CONTENT_TYPE,), models.Problem)
"""What the admin API's OpenAPI document says beyond the docstrings of its handlers."""
