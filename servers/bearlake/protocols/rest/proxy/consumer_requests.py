"""What requests to consumer instances say: configs, subscriptions, partitions, offsets. Everything else is refused with 422.

Source: Confluent, "REST Proxy API Reference v2": configs may be JSON values or their texts.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import re2
from aiohttp import web

from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.proxy.consumer import ConsumerConfig, Pattern
from bearlake.protocols.rest.proxy.formats import Format, parse_name
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.offsets import OffsetSpec

_RESETS: dict[str, OffsetSpec | None] = {
    "earliest": OffsetSpec.EARLIEST,
    "smallest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "largest": OffsetSpec.LATEST,
    "none": None,
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_LIST_COUNT_MAX = 10_000
_PATTERN_LENGTH_MAX = 1_000
_QUIET = re2.Options()
_QUIET.log_errors = False


class Position(NamedTuple):
    """An offset of a partition, with the text of its commit."""

    partition: Partition
    offset: int
    metadata: str


def config(body: Mapping[str, Any], group: str, default_name: str, settings: RestSettings) -> ConsumerConfig:
    """The config of a new instance. Raises `Problem` (42204)."""
    known = {"name", "id", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes"}
    known.add("consumer.request.timeout.ms")
    for key in body:
        if key not in known:
            raise _bad(f"{key[:100]} is not known")
    name = body.get("name", body.get("id"))
    name = default_name if name is None else name
    if not isinstance(name, str) or not _NAME.match(name):
        raise _bad("name: expected 1 to 249 characters of a-z A-Z 0-9 . _ -")
    reset = body.get("auto.offset.reset", "latest")
    if not isinstance(reset, str) or reset.lower() not in _RESETS:
        raise _bad(f"auto.offset.reset: expected one of {', '.join(_RESETS)}")
    form = body.get("format")
    return ConsumerConfig(
        group=group,
        name=name,
        format=Format.BINARY if form is None else parse_name(form),
        reset=_RESETS[reset.lower()],
        is_auto_commit=_flag(body.get("auto.commit.enable", True)),
        wait_ms=_number(body, "consumer.request.timeout.ms", settings.consumer_wait_ms, settings.request_timeout_ms),
        fetch_bytes_min=max(1, _number(body, "fetch.min.bytes", 1, settings.fetch_bytes_max)),
    )


def subscription(body: Mapping[str, Any]) -> tuple[list[str], Pattern | None]:
    """Topics, or a pattern. Raises `Problem` (40903: both, 422)."""
    topics, pattern = body.get("topics"), body.get("topic_pattern")
    if topics is not None and pattern is not None:
        raise Problem(409, 40903, "Subscription to topics, partitions and pattern are mutually exclusive")
    if pattern is not None:
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= _PATTERN_LENGTH_MAX:
            raise Problem(422, 422, f"topic_pattern: expected text of at most {_PATTERN_LENGTH_MAX} characters")
        try:
            return [], re2.compile(pattern, options=_QUIET)
        except re2.error as error:
            raise Problem(422, 422, f"topic_pattern: {error}") from error
    if (
        not isinstance(topics, list)
        or not topics
        or not all(isinstance(one, str) and _NAME.match(one) for one in topics)
    ):
        raise Problem(422, 422, "topics: expected a list of topic names, or topic_pattern")
    return topics, None


def partitions(body: Mapping[str, Any]) -> list[Partition]:
    """`{"partitions": [{"topic": …, "partition": …}]}`. Raises `Problem` (422)."""
    return [_partition(item, "partitions") for item in _items(body, "partitions")]


def offsets(body: Mapping[str, Any]) -> list[Position]:
    """`{"offsets": [{"topic": …, "partition": …, "offset": …}]}`. Raises `Problem` (422)."""
    found = []
    for item in _items(body, "offsets"):
        partition = _partition(item, "offsets")
        offset, metadata = item.get("offset"), item.get("metadata") or ""
        if not _is_int(offset) or not 0 <= offset < _INT64_MAX:
            raise Problem(422, 422, "offsets: offset: expected a number from 0")
        if not isinstance(metadata, str):
            raise Problem(422, 422, "offsets: metadata: expected text")
        found.append(Position(partition, offset, metadata))
    return found


def commits(body: Mapping[str, Any], metadata_bytes_max: int) -> dict[Partition, CommittedOffset] | None:
    """Offsets to commit: one behind the records that the client names. None when it names none. Raises `Problem` (422)."""
    if not body:
        return None
    found = {}
    for one in offsets(body):
        if len(one.metadata.encode(errors="surrogatepass")) > metadata_bytes_max:
            raise Problem(422, 422, f"offsets: metadata: at most {metadata_bytes_max} bytes")
        found[one.partition] = CommittedOffset(offset=one.offset + 1, metadata=one.metadata)
    return found


def limits(request: web.Request, config: ConsumerConfig, settings: RestSettings) -> tuple[int, int]:
    """Longest wait (ms) and size (bytes) of an answer. Raises `Problem` (422)."""
    wait_ms = _query(request, "timeout", config.wait_ms)
    bytes_max = _query(request, "max_bytes", settings.fetch_bytes_max)
    return min(wait_ms, settings.request_timeout_ms), max(1, min(bytes_max, settings.fetch_bytes_max))


def _query(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if text == "-1":
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(422, 422, f"{name}: expected a number from 0")
    return int(text)


def _items(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    items = body.get(name)
    if not isinstance(items, list) or len(items) > _LIST_COUNT_MAX or not all(isinstance(one, dict) for one in items):
        raise Problem(422, 422, f"{name}: expected a list of at most {_LIST_COUNT_MAX} objects")
    return items


def _partition(item: Mapping[str, Any], what: str) -> Partition:
    topic, index = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not _NAME.match(topic):
        raise Problem(422, 422, f"{what}: topic: expected a topic's name")
    if not _is_int(index) or not 0 <= index <= _INT32_MAX:
        raise Problem(422, 422, f"{what}: partition: expected a number from 0")
    return topic, index


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise _bad("auto.commit.enable: expected true or false")
    return text == "true"


def _number(body: Mapping[str, Any], name: str, default: int, largest: int) -> int:
    value = body.get(name)
    if value is None or str(value) == "-1":
        return default
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _bad(f"{name}: expected a number from 0")
    return min(int(text), largest)


def _bad(reason: str) -> Problem:
    return Problem(422, 42204, f"Invalid consumer configuration: {reason}")
