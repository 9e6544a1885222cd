"""Encode the frame of a Produce response, versions 3-13."""

from collections.abc import Sequence
from struct import Struct, error

from bearlake.kernel.kafka import ProduceResult
from bearlake.kernel.kafka.frame import Encoding
from bearlake.kernel.kafka.versions import FLEXIBLE, LOG_START_OFFSET, RECORD_ERRORS, TOPIC_IDS, check_version

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_ANSWER = Struct(">ihqq")


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
    encoding = Encoding("Produce response", version >= FLEXIBLE, version >= TOPIC_IDS)
    groups: list[tuple[str | bytes, list[ProduceResult]]] = []
    for result in results:
        if not groups or groups[-1][0] != result[0]:
            groups.append((result[0], []))
        groups[-1][1].append(result)
    try:
        out = [_INT32.pack(correlation_id), encoding.tags, encoding.count(len(groups))]
        for topic, answers in groups:
            out += [encoding.topic(topic), encoding.count(len(answers))]
            for _, index, error_code, base_offset, log_append_time_ms, log_start_offset in answers:
                out.append(_ANSWER.pack(index, error_code, base_offset, log_append_time_ms))
                if version >= LOG_START_OFFSET:
                    out.append(_INT64.pack(log_start_offset))
                if version >= RECORD_ERRORS:
                    out.append(b"\1\0\0" if encoding.is_flexible else b"\0\0\0\0\xff\xff")
            out.append(encoding.tags)
        out += [_INT32.pack(throttle_ms), encoding.tags]
    except error as cause:
        raise ValueError(f"Produce response: {cause}") from None
    body = b"".join(out)
    return _INT32.pack(len(body)) + body
