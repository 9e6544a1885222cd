"""Parses requests to consumer instances: configs, subscriptions, partitions, offsets. `models.py` defines the valid forms.

Source: Confluent, "REST Proxy API Reference v2": config values may be JSON values or text.
"""

import re2
from aiohttp import web

from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import models
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.proxy.consumer import ConsumerConfig
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.protocols.rest.proxy.models import Flag, Number, Position, Reset
from bearlake.protocols.rest.proxy.patterns import Pattern
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.models import Mismatch
from bearlake.streams.name_patterns import compiled
from bearlake.streams.offsets import OffsetSpec

_RESETS: dict[Reset, OffsetSpec | None] = {
    Reset.EARLIEST: OffsetSpec.EARLIEST,
    Reset.SMALLEST: OffsetSpec.EARLIEST,
    Reset.LATEST: OffsetSpec.LATEST,
    Reset.LARGEST: OffsetSpec.LATEST,
    Reset.NONE: None,
}
_BAD_CONFIG = "Invalid consumer configuration: "


async def config(body: bytes, group: str, default_name: str, settings: RestSettings) -> ConsumerConfig:
    """Parse the config of a new instance. Raises `Problem` (400, 42204)."""
    count_max = settings.request_value_count_max
    asked = await bodies.parse_optional(models.NEW_CONSUMER, body, count_max, code=42204, prefix=_BAD_CONFIG)
    return ConsumerConfig(
        group=group,
        name=asked.name or asked.id or default_name,
        format=asked.format or Format.BINARY,
        reset=_RESETS[asked.reset or Reset.LATEST],
        is_auto_commit=asked.auto_commit not in (False, Flag.FALSE),
        wait_ms=_number(asked.wait_ms, settings.consumer_wait_ms, settings.request_timeout_ms),
        fetch_bytes_min=max(1, _number(asked.fetch_bytes_min, 1, settings.fetch_bytes_max)),
    )


async def subscription(body: bytes, settings: RestSettings) -> tuple[list[str], Pattern | None]:
    """Parse topics or a pattern. Raises `Problem` (40903 if both are given, 422)."""
    asked = await bodies.parse_optional(models.SUBSCRIPTION, body, settings.request_value_count_max)
    if asked.topics is not None and asked.topic_pattern is not None:
        raise Problem(409, 40903, "Subscription to topics, partitions and pattern are mutually exclusive")
    if asked.topic_pattern is not None:
        try:
            return [], compiled(asked.topic_pattern)
        except re2.error as error:
            raise Problem(422, 422, f"topic_pattern: {error}") from error
    if asked.topics is None:
        raise Problem(422, 422, "topics: expected a list of topic names, or topic_pattern, found nothing")
    return asked.topics, None


async def partitions(body: bytes, settings: RestSettings) -> list[Partition]:
    """Parse `{"partitions": [{"topic": …, "partition": …}]}`. Raises `Problem` (422)."""
    asked = await bodies.parse_optional(models.PLACES, body, settings.request_value_count_max)
    return [(place.topic, place.partition) for place in asked.partitions]


async def offsets(body: bytes, settings: RestSettings) -> list[Position]:
    """Parse `{"offsets": [{"topic": …, "partition": …, "offset": …}]}`. Raises `Problem` (422)."""
    return (await bodies.parse_optional(models.POSITIONS, body, settings.request_value_count_max)).offsets


async def commits(
    body: bytes, metadata_bytes_max: int, settings: RestSettings
) -> dict[Partition, CommittedOffset] | None:
    """Parse the offsets to commit, one past each record that the client names; None if it names none. Raises `Problem` (422)."""
    if _is_empty(body):
        return None
    found = {}
    for at, offset in enumerate(await offsets(body, settings)):
        metadata = offset.metadata or ""
        if len(metadata.encode()) > metadata_bytes_max:
            raise Problem(422, 422, f"offsets[{at}].metadata: expected at most {metadata_bytes_max} bytes")
        if "\0" in metadata:  # PostgreSQL cannot store it
            raise Problem(422, 422, f"offsets[{at}].metadata: expected no NUL")
        found[offset.topic, offset.partition] = CommittedOffset(offset=offset.offset + 1, metadata=metadata)
    return found


def _is_empty(body: bytes) -> bool:
    """Whether a body has nothing, or an object without fields."""
    given = body.strip()
    return not given or ((given[:1], given[-1:]) == (b"{", b"}") and not given[1:-1].strip())


def limits(request: web.Request, config: ConsumerConfig, settings: RestSettings) -> tuple[int, int]:
    """Return the longest wait (ms) and the largest size (bytes) of an answer. Raises `Problem` (422)."""
    try:
        asked = models.READ_LIMITS.read(request)
    except Mismatch as error:
        raise Problem(422, 422, str(error)) from error
    wait_ms = config.wait_ms if asked.timeout < 0 else asked.timeout
    bytes_max = settings.fetch_bytes_max if asked.max_bytes < 0 else asked.max_bytes
    return min(wait_ms, settings.request_timeout_ms), max(1, min(bytes_max, settings.fetch_bytes_max))


def _number(asked: Number | None, default: int, largest: int) -> int:
    number = -1 if asked is None else int(asked)
    return default if number < 0 else min(number, largest)
