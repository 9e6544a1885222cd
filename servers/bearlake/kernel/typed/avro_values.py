"""Appends rows of Avro values to columns, and takes back the rows of malformed values."""

from collections.abc import Sequence
from itertools import pairwise

from bearlake.errors import TooLarge
from bearlake.kernel.typed import TypedKind, TypedOutcome, TypedSchema
from bearlake.kernel.typed.avro_reader import AvroReader, Stop
from bearlake.kernel.typed.slots import Column


class _Full(Exception):
    """The columns would exceed their limit."""


class AvroDecoder(AvroReader):
    """Appends one row per value."""

    def __init__(self, schema: TypedSchema, root: Column, row_count: int, bytes_max: int) -> None:
        super().__init__(schema)
        self._root = root
        self._row_count = row_count
        self._bytes_max = bytes_max
        self._used = row_count * root.slot_bytes
        if self._used > bytes_max and row_count > 1:
            raise TooLarge("a set of typed columns", self._used, bytes_max)

    def append(self, value: bytes | None, skip: int) -> int:
        """Append the row of a value; return its status."""
        row, used = self._root.length, self._used
        try:
            if value is None:
                self._root.add_null()
                return TypedOutcome.NULL
            self._begin(value, skip)
            self._value(self._root)
            if self._at != len(self._data):
                self._found(0, TypedOutcome.FORM)
        except Stop as stop:
            self._status = stop.status
        except _Full:
            if self._row_count > 1:
                raise TooLarge("a set of typed columns", self._used, self._bytes_max) from None
            self._status = TypedOutcome.SIZE
        else:
            return self._status
        self._used = used
        self._root.cut(row)
        self._root.add_null()
        return self._status

    def _begin(self, value: bytes, skip: int) -> None:
        self._data, self._at, self._status = value, skip, TypedOutcome.EXACT
        self._credit = len(value) - skip
        if self._credit < 0:
            raise Stop(0, TypedOutcome.TRUNCATED)
        self._use(0)

    def _use(self, size: int) -> None:
        self._used += size
        if self._used > self._bytes_max:
            raise _Full

    def _value(self, column: Column) -> None:
        if self._is_null(column.index, column.node):
            column.add_null()
            return
        kind = TypedKind(column.node.kind)
        if kind == TypedKind.RECORD:
            for child in column.children:
                self._value(child)
            column.add()
        elif kind == TypedKind.UNION:
            self._union(column)
        elif kind == TypedKind.NULL:
            column.add_null()
        elif kind == TypedKind.MAP:
            self._map(column)
        elif kind == TypedKind.ARRAY:
            self._blocks(column.index, column.children)
            column.add()
        else:
            content = self._leaf(column.index, column.node)
            if content is None:
                self._found(column.index, TypedOutcome.DOMAIN)
                column.add_null()
                return
            if kind in (TypedKind.BYTES, TypedKind.STRING, TypedKind.ENUM, TypedKind.OPAQUE):
                self._use(len(content))
            column.add(content)

    def _union(self, column: Column) -> None:
        branches = column.node.children
        branch = self._number(column.index)
        if not 0 <= branch < len(branches):
            raise Stop(column.index, TypedOutcome.BRANCH)
        chosen = branches[branch]
        is_null = True
        for child in column.children:
            if child.index == chosen:
                self._value(child)
                is_null = False
            else:
                child.add_null()
        column.end(is_valid=not is_null)

    def _map(self, column: Column) -> None:
        keys = column.children[0]
        start = keys.length
        self._blocks(column.index, column.children)
        places = keys.offsets[start : keys.length + 1]
        texts = [bytes(keys.content[low:high]) for low, high in pairwise(places)]
        if len(set(texts)) == len(texts):
            column.add()
            return
        self._found(column.index, TypedOutcome.DOMAIN)
        for child in column.children:
            child.cut(start)
        column.add_null()

    def _blocks(self, index: int, children: Sequence[Column]) -> None:
        cost = sum(child.slot_bytes for child in children)
        block_count = 0
        while count := self._block(index):
            self._use(count * cost)
            block_count += 1
            if block_count == 2:
                self._found(index, TypedOutcome.FORM)
            for _ in range(count):
                for child in children:
                    self._value(child)
