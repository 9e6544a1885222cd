"""Encode the frame of a Produce response, versions 3-13."""

from collections.abc import Sequence
from struct import Struct, error

from bearlake.kernel.kafka import ProduceResult
from bearlake.kernel.kafka.versions import FLEXIBLE, LOG_START_OFFSET, RECORD_ERRORS, TOPIC_IDS, check_version

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_ANSWER = Struct(">ihqq")
_NAME_BYTES_MAX = 0x7FFF


def encode_produce_response(
    version: int, correlation_id: int, results: Sequence[ProduceResult], throttle_ms: int, /
) -> bytes:
    """Return the complete response frame, size prefix and header included, with one partition response per result.

    Consecutive results with equal topics share one topic entry. Below version 5 there is no log start offset. The response has no
    record errors, no error messages, no current leaders and no node endpoints.

    Raises:
        Unsupported: the version is not in 3-13.
        ValueError: a number does not fit its field, or a topic is not a name (from version 13 on: not a 16-byte id).
    """
    check_version(version)
    is_flexible = version >= FLEXIBLE
    groups: list[tuple[str | bytes, list[ProduceResult]]] = []
    for result in results:
        if not groups or groups[-1][0] != result[0]:
            groups.append((result[0], []))
        groups[-1][1].append(result)
    try:
        out = [_INT32.pack(correlation_id), b"\0" if is_flexible else b"", _count(len(groups), is_flexible)]
        for topic, answers in groups:
            out += [_topic(topic, version), _count(len(answers), is_flexible)]
            for _, index, error_code, base_offset, log_append_time_ms, log_start_offset in answers:
                out.append(_ANSWER.pack(index, error_code, base_offset, log_append_time_ms))
                if version >= LOG_START_OFFSET:
                    out.append(_INT64.pack(log_start_offset))
                if version >= RECORD_ERRORS:
                    out.append(b"\1\0\0" if is_flexible else b"\0\0\0\0\xff\xff")
            out.append(b"\0" if is_flexible else b"")
        out += [_INT32.pack(throttle_ms), b"\0" if is_flexible else b""]
    except error as cause:
        raise ValueError(f"Produce response: {cause}") from None
    body = b"".join(out)
    return _INT32.pack(len(body)) + body


def _count(count: int, is_flexible: bool) -> bytes:
    return _varint(count + 1) if is_flexible else _INT32.pack(count)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _topic(topic: str | bytes, version: int) -> bytes:
    if version >= TOPIC_IDS:
        if isinstance(topic, bytes) and len(topic) == 16:
            return topic
        raise ValueError("Produce response: a topic id has 16 bytes")
    if isinstance(topic, str) and len(name := topic.encode()) <= _NAME_BYTES_MAX:
        return (_varint(len(name) + 1) if version >= FLEXIBLE else _INT16.pack(len(name))) + name
    raise ValueError("Produce response: a topic name is a str of at most 32767 bytes")
