"""Typed columns of one format in the native kernel and in its Python twin: what the targets of all formats share."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from bearlake.kernel import TypedOutcome, TypedSource, fallback
from fixtures.typed_kernels import by_index
from fuzz.target import Choices, exact, outcome
from fuzz.targets.kernel import ERRORS, native

BYTES_MAX = 1 << 20

Schema = tuple[Any, ...]
"""The arguments that are a schema: nodes, and for Protobuf wires."""


def cut(data: bytes, cuts: Iterable[int]) -> tuple[bytes, bytes, int]:
    """Cut bytes into values: offsets, content, and their number."""
    places = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return b"".join(place.to_bytes(4, "little") for place in places), data, len(places) - 1


def plain(answer: Any) -> Any:
    """Return an answer with bytes for all buffers."""
    if isinstance(answer, memoryview):
        return bytes(answer)
    return [plain(part) for part in answer] if isinstance(answer, list | tuple) else answer


def both(name: str, *arguments: Any) -> Any:
    """Call a function of both kernels, which must answer alike; bytes that the native one gets end with their memory."""
    answers = []
    for module, hold in ((native, exact), (fallback, bytes)):
        answers.append(
            plain(outcome(ERRORS, getattr(module, name), *(_held(argument, hold) for argument in arguments)))
        )
    assert answers[0] == answers[1], f"native {answers[0]!r:.300}, Python {answers[1]!r:.300}"
    return answers[1]


def _held(argument: Any, hold: Any) -> Any:
    if isinstance(argument, bytes):
        return hold(argument)
    if isinstance(argument, list):
        return [TypedSource(*(_held(part, hold) for part in source)) for source in argument]
    return argument


def _column_seed(columns: Sequence[TypedSource]) -> bytes | None:
    """Return the columns as `hostile_columns` reads them; None if they are too large."""
    heads, content = bytearray(), bytearray()
    for column in columns:
        buffers = [None if part is None else bytes(part) for part in column[2:6]]
        sizes = [0xFF if part is None else len(part) for part in buffers]
        if max(column.length, *(size for size, part in zip(sizes, buffers, strict=True) if part is not None), 0) > 254:
            return None
        heads += bytes([0, column.length, column.entry_count, *sizes])
        content += b"".join(part or b"" for part in buffers)
    return bytes(heads + content)


class TypedFormat:
    """The functions `decode_<name>` and `encode_<name>`."""

    def __init__(self, name: str, schemas: Sequence[Schema]) -> None:
        self._name = name
        self._schemas = schemas

    def decoded(
        self,
        schema: Schema,
        validity: bytes | None,
        values: tuple[bytes, bytes, int],
        skip: int,
        is_verified: int,
        limit: int,
    ) -> Any:
        """Decode values with both kernels."""
        offsets, content, count = values
        return both(f"decode_{self._name}", *schema, validity, offsets, content, 0, count, skip, is_verified, limit)

    def encoded(self, schema: Schema, columns: list[TypedSource]) -> Any:
        """Encode columns with both kernels."""
        return both(f"encode_{self._name}", *schema, columns, b"\0\1")

    def again(self, schema: Schema, decoded: Any) -> object:
        """Encode what was decoded, also with dictionaries; return what tells one answer from another."""
        statuses, slots = decoded
        if isinstance(statuses, type):
            return statuses.__name__
        columns = [TypedSource(0, length, *buffers) for length, _, *buffers in slots]
        encoded = self.encoded(schema, columns)
        assert self.encoded(schema, [by_index(Random(0), column) for column in columns]) == encoded
        found = [TypedOutcome(status & 255).name for status in memoryview(statuses).cast("i")]
        return found, type(encoded[0]).__name__

    def hostile_columns(self, data: bytes) -> object:
        """Encode columns that a Parquet file holds: the input has their sizes, then their bytes."""
        choices = Choices(data)
        schema = choices.of(self._schemas)
        heads = [
            (choices.byte() % 3, choices.byte() % 40, choices.byte() % 40, [choices.byte() for _ in range(4)])
            for _ in self._slots(schema, [])
        ]
        rest, at = choices.rest, 0
        columns = []
        for start, length, entry_count, sizes in heads:
            buffers: list[bytes | None] = []
            for size in sizes:
                buffers.append(None if size == 0xFF else rest[at : at + size])
                at += 0 if size == 0xFF else size
            validity, offsets, content, indices = buffers
            columns.append(TypedSource(start, length, validity, offsets, content, indices, entry_count))
        answer = self.encoded(schema, columns)
        return answer[1][:30] if isinstance(answer[0], type) else "encoded"

    def column_seeds(self, values: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
        """Yield inputs of `hostile_columns` with the columns of these values: some of each schema, in order."""
        for at, (schema, parts) in enumerate(zip(self._schemas, values, strict=True)):
            slots = self._slots(schema, parts)
            columns = [TypedSource(0, column.length, *column[2:]) for column in slots]
            for own in (columns, [by_index(Random(at), column) for column in columns]):
                seed = _column_seed(own)
                if seed is not None:
                    yield bytes([at]) + seed

    def _slots(self, schema: Schema, parts: Sequence[bytes]) -> Any:
        """Decode values to columns."""
        ends = [sum(map(len, parts[: end + 1])) for end in range(len(parts))]
        offsets = b"".join(end.to_bytes(4, "little") for end in (0, *ends))
        decode = getattr(fallback, f"decode_{self._name}")
        return decode(*schema, None, offsets, b"".join(parts), 0, len(parts), 0, 0, BYTES_MAX)[1]
