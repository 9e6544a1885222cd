"""Generates the function that encodes one message in one version.

Like `decoding`, it generates straight-line code with one loop per array.

    def encode(m1, o, cuts):        # message, buffer to append to, records to insert by reference

The function silently omits fields that the version does not have. It writes tagged fields that differ from their defaults.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from bearlake.protocols.kafka.codec import wire
from bearlake.protocols.kafka.codec.schema import FIXED, Field, Schema, Struct
from bearlake.protocols.kafka.codec.source import Source

Encode = Callable[[Any, bytearray, list[tuple[int, wire.Buffer]]], None]
"""Any: the message, whose class depends on the API."""

_NAMES = {
    "many": wire.many,
    "write_varint": wire.write_varint,
    "write_length": wire.write_length,
    "write_string_length": wire.write_string_length,
    "write_records": wire.write_records,
}


def build_encode(schema: Schema, version: int, is_flexible: bool, title: str) -> tuple[Encode, list[str]]:
    """Return the function, and the path of the field that each of its lines handles."""
    writer = _Encoder(schema, version, is_flexible)
    with writer.source.block("def encode(m1, o, cuts):"):
        writer.source.line("pass")
        writer.struct(schema.root, "m1")
        writer.flush()
    return writer.source.function("encode", title), writer.source.places


class _Encoder:
    """Emits code field by field; fixed-size values wait in `pending` for the next `flush`."""

    def __init__(self, schema: Schema, version: int, is_flexible: bool) -> None:
        self.source = Source(_NAMES)
        self.schema = schema
        self.version = version
        self.is_flexible = is_flexible
        self.out = "o"
        self.pending: list[tuple[str, str]] = []  # code and expression; the code x (a zero byte) has no expression
        self.source.label("m")  # m1 is the message

    def flush(self) -> None:
        """Emit one call that writes all pending values."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        values = ", ".join(value for _, value in self.pending if value)
        self.pending.clear()
        self.source.line(f"{self.out} += {self.source.packed(codes, 'pack')}({values})")

    def struct(self, struct_: Struct, name: str) -> None:
        """Emit code that encodes the struct in the local variable `name`. May leave values pending."""
        for field in struct_.untagged(self.version):
            with self.source.field(field.name):
                self.value(field, f"{name}.{field.name}")
        if self.is_flexible:
            self.tags(struct_.tagged(self.version), name)

    def value(self, field: Field, value: str) -> None:
        """Emit code that encodes one field; `value` is the expression for its value."""
        is_nullable = self.version in field.null_versions
        if field.is_array:
            self.array(field, value, is_nullable)
        elif field.type in FIXED:
            self.pending.append((FIXED[field.type], value))
        elif field.is_struct:
            self.optional_struct(field, value, is_nullable)
        else:
            self.text(field.type, value, is_nullable)

    def null(self, name: str, code: str) -> None:
        """Emit the first block of `if … is None: … else:`; the caller opens the `else` block."""
        with self.source.block(f"if {name} is None:"):
            if self.is_flexible:
                self.source.line(f"{self.out}.append(0)")
            else:
                self.source.line(f"{self.out} += {self.source.packed(code, 'pack')}(-1)")

    def text(self, type_: str, value: str, is_nullable: bool) -> None:
        """Emit code for a string, bytes or records."""
        source, code = self.source, "h" if type_ == "string" else "i"
        self.flush()
        source.line(f"w = {value}")
        if is_nullable:
            self.null("w", code)
        with source.block("else:") if is_nullable else nullcontext():
            if type_ == "records":
                assert self.out == "o", "records never lie inside a tagged field"
                source.line(f"write_records(o, cuts, w, {self.is_flexible})")
                return
            if type_ == "string":
                source.line("w = w.encode()")
            source.line("x = len(w)")
            self.length(code, "write_string_length" if type_ == "string" else "write_length")
            source.line(f"{self.out} += w")

    def length(self, code: str, long: str) -> None:
        """Emit code that writes the length in `x`; the function `long` writes a compact length of more than one byte."""
        source = self.source
        if not self.is_flexible:
            source.line(f"{self.out} += {source.packed(code, 'pack')}(x)")
            return
        with source.block("if x < 127:"):
            source.line(f"{self.out}.append(x + 1)")
        with source.block("else:"):
            source.line(f"{long}({self.out}, x)")

    def array(self, field: Field, value: str, is_nullable: bool) -> None:
        """Emit code for an array of any type."""
        source, elements = self.source, self.source.label("a")
        self.flush()
        source.line(f"{elements} = {value}")

        if is_nullable:
            self.null(elements, "i")
        with source.block("else:") if is_nullable else nullcontext():
            source.line(f"x = len({elements})")
            if field.type in FIXED and field.type != "uuid":
                self.numbers(FIXED[field.type], elements)
                return
            self.length("i", "write_length")
            element = source.label("m")
            with source.block(f"for {element} in {elements}:"):
                if field.type in FIXED:
                    self.pending.append((FIXED[field.type], element))
                elif field.is_struct:
                    self.struct(self.schema.structs[field.type], element)
                else:
                    self.text(field.type, element, is_nullable=False)
                self.flush()

    def numbers(self, code: str, elements: str) -> None:
        """Emit code for an array of numbers, with its length."""
        source, out = self.source, self.out
        if not self.is_flexible:
            source.line(f"{out} += many('i{{}}{code}', x, 'pack')(x, *{elements})")
            return
        with source.block("if x < 127:"):
            source.line(f"{out} += many('B{{}}{code}', x, 'pack')(x + 1, *{elements})")
        with source.block("else:"):
            source.line(f"write_length({out}, x)")
            source.line(f"{out} += many('{{}}{code}', x, 'pack')(*{elements})")

    def optional_struct(self, field: Field, value: str, is_nullable: bool) -> None:
        """Emit code for a struct outside an array; if it is nullable, the byte before it tells whether it is present."""
        source, name = self.source, self.source.label("m")
        self.flush()
        source.line(f"{name} = {value}")
        if is_nullable:
            with source.block(f"if {name} is None:"):
                source.line(f"{self.out}.append(255)")
        with source.block("else:") if is_nullable else nullcontext():
            if is_nullable:
                source.line(f"{self.out}.append(1)")
            self.struct(self.schema.structs[field.type], name)
            self.flush()

    def tags(self, tagged: list[Field], name: str) -> None:
        """Emit code for the tagged fields that differ from their defaults, in tag order."""
        if not tagged:
            self.pending.append(("x", ""))
            return
        source, around = self.source, self.out
        self.flush()
        with source.block(f"if {' and '.join(_is_default(field, name) for field in tagged)}:"):
            source.line(f"{around}.append(0)")
        with source.block("else:"):
            count, fields, self.out = source.label("c"), source.label("f"), source.label("o")
            source.line(f"{count} = 0")
            source.line(f"{fields} = bytearray()")
            for field in tagged:
                with source.block(f"if not ({_is_default(field, name)}):"), source.field(field.name):
                    source.line(f"{count} += 1")
                    source.line(f"{self.out} = bytearray()")
                    self.value(field, f"{name}.{field.name}")
                    self.flush()
                    source.line(f"write_varint({fields}, {field.tag})")
                    source.line(f"write_varint({fields}, len({self.out}))")
                    source.line(f"{fields} += {self.out}")
            self.out = around
            source.line(f"write_varint({around}, {count})")
            source.line(f"{around} += {fields}")


def _is_default(field: Field, name: str) -> str:
    if field.default is None:
        return f"{name}.{field.name} is None"
    if field.default == ():
        return f"not {name}.{field.name}"
    return f"{name}.{field.name} == {field.default!r}"
