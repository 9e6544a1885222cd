"""Coalescing: combines many small ranges into few requests.

A request costs a round trip and, on object stores, money. Reading a small gap and discarding it costs less. Pure functions,
shared by the stores and by planners of reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.errors import Invalid, OutOfRange
from bearlake.objects import ByteRange


@dataclass(frozen=True, slots=True)
class Span:
    """One request: bytes `[start, end)`, and the requested ranges inside it, by their position in the caller's list."""

    start: int
    end: int
    positions: tuple[int, ...]


def coalesce(ranges: Sequence[ByteRange], gap_bytes: int) -> list[Span]:
    """Group `ranges` (any order, may overlap) into spans in ascending order.

    Two adjacent ranges share a span if at most `gap_bytes` unrequested bytes lie between them. An empty range joins the span that
    touches it, or makes an empty span of its own.

    Raises:
        Invalid: a range has a negative start or ends before it starts.
    """
    if len(ranges) == 1:
        start, end = ranges[0]
        _check_range(start, end)
        return [Span(start, end, (0,))]
    spans: list[Span] = []
    positions: list[int] = []
    span_start = span_end = 0
    for position in sorted(range(len(ranges)), key=lambda at: ranges[at]):
        start, end = ranges[position]
        _check_range(start, end)
        if positions and start - span_end <= gap_bytes:
            positions.append(position)
            span_end = max(span_end, end)
            continue
        if positions:
            spans.append(Span(span_start, span_end, tuple(positions)))
        positions, span_start, span_end = [position], start, end
    if positions:
        spans.append(Span(span_start, span_end, tuple(positions)))
    return spans


def scatter(ranges: Sequence[ByteRange], spans: Sequence[Span], bodies: Sequence[memoryview]) -> list[memoryview]:
    """Cut the bodies read for `spans` into one view per range, in the order of `ranges`."""
    views: list[memoryview] = [_EMPTY] * len(ranges)
    for span, body in zip(spans, bodies, strict=True):
        assert len(body) == span.end - span.start
        for position in span.positions:
            start, end = ranges[position]
            views[position] = body[start - span.start : end - span.start]
    return views


def check_within(key: str, ranges: Sequence[ByteRange], size: int) -> None:
    """Raise `OutOfRange` if a range ends after `size`, the object's size in bytes."""
    for start, end in ranges:
        if end > size:
            raise OutOfRange(f"object {key}: bytes [{start}, {end}) of {size}", start=0, end=size)


def _check_range(start: int, end: int) -> None:
    if not 0 <= start <= end:
        raise Invalid(f"byte range [{start}, {end}): expected 0 <= start <= end")


_EMPTY = memoryview(bytearray())
