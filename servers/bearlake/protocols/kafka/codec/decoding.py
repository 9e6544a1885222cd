"""Generates the function that decodes one message in one version.

The result is straight-line code with one loop per array and no calls per struct:

    def decode(b, p, n):            # view, position, end -> message, position after it
        o1 = new(ProduceRequest)
        x, = unpack_from_B(b, p)
        p += 1
        …

One `unpack_from` reads a run of fixed-size fields together with the length that follows them. The code checks every announced length
against the remaining bytes before use. It checks the count of an array against the smallest size of its elements and against the
element budget `k`, so a sender cannot cause allocations with a false count. Reading past the end raises IndexError or struct.error.
"""

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from bearlake.protocols.kafka.codec import wire
from bearlake.protocols.kafka.codec.classes import Message, default_source, struct_class
from bearlake.protocols.kafka.codec.schema import FIXED, Field, Schema, Struct
from bearlake.protocols.kafka.codec.source import Source

Decode = Callable[[memoryview, int, int], tuple[Any, int]]
"""Any: the message, whose class depends on the API."""

_NAMES = {
    "many": wire.many,
    "new": object.__new__,
    "read_varint": wire.read_varint,
    "refuse_count": wire.refuse_count,
    "refuse_length": wire.refuse_length,
    "refuse_tags": wire.refuse_tags,
    "Malformed": wire.Malformed,
}


def build_decode(
    schema: Schema, message: type[Message], version: int, is_flexible: bool, title: str
) -> tuple[Decode, list[str]]:
    """Return the function, and the path of the field that each of its lines handles."""
    writer = _Decoder(schema, message, version, is_flexible)
    with writer.source.block("def decode(b, p, n):"):
        writer.source.line(f"k = {wire.ELEMENTS_MAX}")
        found = writer.struct(schema.root)
        writer.flush()
        writer.source.line(f"return {found}, p")
    return writer.source.function("decode", title), writer.source.places


class _Decoder:
    """Emits code field by field; fixed-size values wait in `pending` for the next `flush`."""

    def __init__(self, schema: Schema, message: type[Message], version: int, is_flexible: bool) -> None:
        self.source = Source(_NAMES)
        self.schema = schema
        self.message = message
        self.version = version
        self.is_flexible = is_flexible
        self.pending: list[tuple[str, str]] = []

    def flush(self) -> None:
        """Emit one call that reads all pending values."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        self.pending.clear()
        name = self.source.packed(codes, "unpack_from")
        self.source.line(f"{targets}{',' if len(codes.replace('16s', 's')) == 1 else ''} = {name}(b, p)")
        self.source.line(f"p += {struct.calcsize('>' + codes)}")

    def struct(self, struct_: Struct) -> str:
        """Emit code that decodes a struct into a new object; returns the object's local name. May leave values pending."""
        source, found = self.source, self.source.label("o")
        class_ = struct_class(self.message, struct_)
        source.names[class_.__name__] = class_
        self.flush()
        source.line(f"{found} = new({class_.__name__})")
        untagged, tagged = struct_.untagged(self.version), struct_.tagged(self.version)
        for field in struct_.fields:
            if field not in untagged:
                source.line(f"{found}.{field.name} = {default_source(field)}")
        for field in untagged:
            with source.field(field.name):
                self.value(field, f"{found}.{field.name}")
        if self.is_flexible:
            self.tags(found, tagged)
        return found

    def value(self, field: Field, target: str) -> None:
        """Emit code that decodes one field into `target`."""
        is_nullable = self.version in field.null_versions
        if field.is_array:
            self.array(field, target, is_nullable)
        elif field.type in FIXED:
            self.pending.append((FIXED[field.type], target))
        elif field.is_struct:
            self.optional_struct(field, target, is_nullable)
        else:
            self.text(field.type, target, is_nullable)

    def length(self, code: str) -> None:
        """Emit code that reads a length into `x`: the length, or in flexible versions the length plus one (0 is null)."""
        self.pending.append(("B" if self.is_flexible else code, "x"))
        self.flush()
        if self.is_flexible:
            self.varint("x")

    def varint(self, name: str) -> None:
        """Emit code that reads the rest of a varint whose first byte is in `name`."""
        with self.source.block(f"if {name} > 127:"):
            self.source.line(f"{name}, p = read_varint(b, p, {name})")

    def text(self, type_: str, target: str, is_nullable: bool) -> None:
        """Emit code for a string, bytes or records."""
        source = self.source
        self.length("h" if type_ == "string" else "i")
        length, null, end = ("x - 1", "x < 1", "p + x - 1") if self.is_flexible else ("x", "x < 0", "p + x")
        value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[type_]
        too_long = f" or x > {wire.STRING_BYTES_MAX + 1}" if self.is_flexible and type_ == "string" else ""

        if is_nullable:
            with source.block(f"if {null}:"):
                source.line(f"{target} = None")
        with source.block("else:") if is_nullable else nullcontext():
            source.line(f"q = {end}")
            with source.block(f"if q > n{too_long}{'' if is_nullable else f' or {null}'}:"):
                source.line(f"refuse_length({length}, n - p)")
            source.line(f"{target} = {value}")
            source.line("p = q")

    def array(self, field: Field, target: str, is_nullable: bool) -> None:
        """Emit code for an array of any type."""
        source, least = self.source, self.least(field, is_element=True)
        self.length("i")
        if self.is_flexible:
            source.line("x -= 1")
        if is_nullable:
            with source.block("if x < 0:"):
                source.line(f"{target} = None")
        with source.block("else:") if is_nullable else nullcontext():
            source.line("k -= x")
            size = f"x * {least}" if least > 1 else "x"
            with source.block(f"if {size} > n - p or k < 0{'' if is_nullable else ' or x < 0'}:"):
                source.line("refuse_count(x, n - p, k)")
            self.elements(field, target, least)

    def elements(self, field: Field, target: str, least: int) -> None:
        """Emit code for the `x` elements of an array, each at least `least` bytes long."""
        source = self.source
        if field.type == "uuid":
            source.line(f"{target} = [bytes(b[q : q + 16]) for q in range(p, p + x * 16, 16)]")
            source.line("p += x * 16")
            return
        if field.type in FIXED:
            source.line(f"{target} = list(many('{{}}{FIXED[field.type]}', x, 'unpack_from')(b, p))")
            source.line(f"p += x * {least}")
            return
        found = source.label("a")
        source.line(f"{target} = {found} = []")
        with source.block("for _ in range(x):"):
            if field.is_struct:
                source.line(f"{found}.append({self.struct(self.schema.structs[field.type])})")
                self.flush()
            else:
                self.text(field.type, "w", is_nullable=False)
                source.line(f"{found}.append(w)")

    def optional_struct(self, field: Field, target: str, is_nullable: bool) -> None:
        """Emit code for a struct outside an array; if it is nullable, the byte before it tells whether it is present."""
        source = self.source
        if is_nullable:
            self.pending.append(("b", "x"))
            self.flush()
            with source.block("if x < 0:"):
                source.line(f"{target} = None")
        with source.block("else:") if is_nullable else nullcontext():
            found = self.struct(self.schema.structs[field.type])
            self.flush()
            source.line(f"{target} = {found}")

    def tags(self, found: str, tagged: list[Field]) -> None:
        """Emit code for tagged fields: skips unknown tags; the last occurrence of a repeated tag wins (as in Kafka)."""
        source, end = self.source, self.source.label("e")
        self.pending.append(("B", "x"))
        self.flush()
        with source.block("if x:"):
            self.varint("x")
            source.line("k -= x")
            with source.block("if k < 0:"):
                source.line("refuse_tags(x)")
            with source.block("for _ in range(x):"):
                for name in "tx":
                    source.line(f"{name} = b[p]")
                    source.line("p += 1")
                    self.varint(name)
                source.line(f"{end} = p + x")
                with source.block(f"if {end} > n:"):
                    source.line("refuse_length(x, n - p)")
                for index, field in enumerate(tagged):
                    with source.block(f"{'el' if index else ''}if t == {field.tag}:"), source.field(field.name):
                        self.value(field, f"{found}.{field.name}")
                        self.flush()
                        with source.block(f"if p != {end}:"):
                            source.line("raise Malformed('a tagged field does not have its announced size')")
                source.line(f"p = {end}")

    def least(self, field: Field, *, is_element: bool = False) -> int:
        """The smallest size in bytes of a value of this field, or of one element of its array."""
        if field.is_array and not is_element:
            return 1 if self.is_flexible else 4
        if field.type in FIXED:
            return struct.calcsize(">" + FIXED[field.type])
        if field.type == "string":
            return 1 if self.is_flexible else 2
        if not field.is_struct:
            return 1 if self.is_flexible else 4
        if self.version in field.null_versions and not is_element:
            return 1
        fields = self.schema.structs[field.type].untagged(self.version)
        return max(1, sum(map(self.least, fields)) + self.is_flexible)
