"""The only mapping from our error kinds to Pulsar's errors."""

from bearlake import errors
from bearlake.protocols.pulsar.proto.commands_pb2 import ServerError
from bearlake.streams.subscriptions.model import Busy, Damaged, NotHolder, Overlap
from bearlake.telemetry import metrics

NO_TRANSACTIONS = "transactions are not supported"
"""The message of the refusal of everything that belongs to a transaction (decision 190)."""


class Refused(errors.BearlakeError):
    """The request is answered with the `ServerError` of this name; `message` is for the client's log."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = ServerError.Value(error)


_BY_KIND: tuple[tuple[type[errors.BearlakeError], str], ...] = (
    (NotHolder, "ServiceNotReady"),
    (Damaged, "PersistenceError"),
    (Busy, "ConsumerBusy"),
    (Overlap, "ConsumerAssignError"),
    (errors.TooLarge, "NotAllowedError"),
    (errors.Corrupt, "NotAllowedError"),
    (errors.Unsupported, "NotAllowedError"),
    (errors.Invalid, "NotAllowedError"),
    (errors.NotFound, "TopicNotFound"),
    (errors.Denied, "AuthorizationError"),
    (errors.Overloaded, "TooManyRequests"),
    (errors.Fenced, "ServiceNotReady"),
    (errors.Conflict, "ServiceNotReady"),
    (errors.AlreadyExists, "ServiceNotReady"),
    (errors.Unavailable, "ServiceNotReady"),
)
"""The first matching kind applies. ServiceNotReady makes clients look the topic up again and retry."""


def error_of(error: errors.BearlakeError) -> int:
    """The number of the protocol's error (`ServerError`) for an error kind."""
    if isinstance(error, Refused):
        return error.error
    name = next((name for kind, name in _BY_KIND if isinstance(error, kind)), "UnknownError")
    return ServerError.Value(name)


def count_error(number: int) -> None:
    """Count an error (`ServerError`) that is sent to a client."""
    metrics.PULSAR_ERRORS.labels(ServerError.Name(number)).inc()
