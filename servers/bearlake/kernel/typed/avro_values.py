"""Appends rows of Avro values to columns, and takes back the rows of malformed values."""

from collections.abc import Sequence
from itertools import pairwise

from typing_extensions import override

from bearlake.kernel.typed import TypedKind, TypedOutcome, TypedSchema
from bearlake.kernel.typed.avro_reader import AvroReader
from bearlake.kernel.typed.decode import RowDecoder, Stop
from bearlake.kernel.typed.slots import Column


class AvroDecoder(AvroReader, RowDecoder):
    """Appends one row per value."""

    def __init__(self, schema: TypedSchema, root: Column, row_count: int, bytes_max: int) -> None:
        AvroReader.__init__(self, schema)
        RowDecoder.__init__(self, root, row_count, bytes_max)

    @override
    def _append_row(self, value: bytes, skip: int) -> None:
        self._data, self._at, self._credit = value, skip, len(value) - skip
        self._value(self._root)
        if self._at != len(self._data):
            self._found(0, TypedOutcome.FORM)

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
