"""Produce requests of an export.

Kafka allows one batch of each partition in a request, so several requests are in flight. Their answers tell the offsets of the batches.

Source: Kafka protocol guide (Produce), KIP-98 (sequences), KIP-516 (topic ids).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bearlake.errors import BearlakeError, Denied, Invalid, Unavailable
from bearlake.exporting.settings import ExportTargetSettings
from bearlake.importing.cluster import SourceTopic
from bearlake.importing.source import Connection
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode

PRODUCE_NEWEST = 13
"""The newest version that is used."""
_WITH_TOPIC_IDS = 13
_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_REFUSED = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.POLICY_VIOLATION,
)
FORGOTTEN = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
)
"""The target does not know the producer any more."""


class Refused(Unavailable):
    """A batch was not stored, or it is unknown whether it was. `code`: the target's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


Batches = Mapping[tuple[str, int], bytes | bytearray]
"""At most one batch for each partition: (topic, partition) → bytes."""


async def produced(
    connection: Connection,
    topics: Mapping[str, SourceTopic],
    rounds: Sequence[Batches],
    settings: ExportTargetSettings,
    failed: Callable[[tuple[str, int], BearlakeError], None] = lambda place, error: None,
) -> list[dict[tuple[str, int], int]]:
    """Send batches, a request for each round, in order; return the base offset of each. All are durable when this returns.

    `topics`: by name, as the target has them. `failed` gets the first error of a partition before it is raised. Raises as
    `Connection.ask_in_flight`, and what `refusal` returns; then any of the batches may be stored, now or later.
    """
    newest = PRODUCE_NEWEST if all(topic.id.int for topic in topics.values()) else _WITH_TOPIC_IDS - 1
    version = connection.version(ApiKey.PRODUCE, newest)
    requests = [_request(topics, batches, version, settings) for batches in rounds]
    answers = await connection.ask_in_flight(requests, newest=newest, in_flight_max=settings.requests_in_flight_max)
    names = {topic.id.bytes: topic.name for topic in topics.values()}
    found: list[dict[tuple[str, int], int]] = []
    for batches, answer in zip(rounds, answers, strict=True):
        offsets: dict[tuple[str, int], int] = {}
        for item in answer.responses:
            name = names.get(bytes(item.topic_id), "") if version >= _WITH_TOPIC_IDS else item.name
            for partition in item.partition_responses:
                error = refusal(partition, f"topic {name!r}, partition {partition.index}")
                if error is not None:
                    failed((name, partition.index), error)
                    raise error
                offsets[name, partition.index] = partition.base_offset
        if offsets.keys() != batches.keys():
            raise Unavailable(f"the answer of {settings.PEER} has other partitions than the request")
        found.append(offsets)
    return found


def refusal(partition: Any, what: str) -> BearlakeError | None:
    """Return the error of a partition's answer; None if its batch is stored.

    `Denied`: the user may not write there. `Invalid`: the target never takes this batch. `Refused`: all others.
    """
    code = partition.error_code
    if code == ErrorCode.NONE:
        return None
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
    message = f"the target refuses a batch of {what}: {name} {partition.error_message or ''}".rstrip()
    if code in _DENIED:
        return Denied(message)
    return Invalid(message) if code in _REFUSED else Refused(message, code)


def _request(topics: Mapping[str, SourceTopic], batches: Batches, version: int, settings: ExportTargetSettings) -> Any:
    kind = messages.ProduceRequest
    made: dict[str, Any] = {}
    for (name, index), batch in batches.items():
        key: dict[str, Any] = {"topic_id": topics[name].id.bytes} if version >= _WITH_TOPIC_IDS else {"name": name}
        topic = made.setdefault(name, kind.Topic(**key, partition_data=[]))
        topic.partition_data.append(kind.Partition(index=index, records=memoryview(batch)))
    return kind(transactional_id=None, acks=-1, timeout_ms=settings.timeout_ms, topic_data=list(made.values()))
