"""Message classes: slots, keyword constructors with the schema's defaults, comparison by value.

Generated from the schema at first use; `messages/__init__.pyi` declares the classes for readers and type checkers.
"""

from functools import cache
from typing import Any

from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.schema import Field, Schema, Struct, load

_EMPTY: tuple[()] = ()


class Message:
    """Base class of all messages and of the structs inside them."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # mutable values

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__qualname__}({values})"


@cache
def message_class(key: ApiKey, kind: str) -> type[Message]:
    """The class of a request or response (`kind`); its structs are attributes of it, e.g. `FetchResponse.Partition`."""
    schema: Schema = getattr(load(key), kind)
    made = _make(schema.root, {"api_key": key})
    for struct in schema.structs.values():
        inner = _make(struct, {})
        inner.__qualname__ = f"{made.__name__}.{inner.__name__}"
        setattr(made, inner.__name__, inner)
    return made


def struct_class(message: type[Message], struct: Struct) -> type[Message]:
    """The class of a struct of `message`, or `message` itself."""
    found: type[Message] = message if struct.name == message.__name__ else getattr(message, struct.name)
    return found


def default_source(field: Field) -> str:
    """Python source of a field's default value; a new list for arrays."""
    return "[]" if field.default == () else repr(field.default)


def _make(struct: Struct, attributes: dict[str, Any]) -> type[Message]:
    # Any: class attributes of any type.
    namespace: dict[str, Any] = {"EMPTY": _EMPTY}
    parameters = ", ".join(f"{field.name}={_parameter_default(field)}" for field in struct.fields)
    lines = [f"def __init__(self{', *, ' if parameters else ''}{parameters}):", "    pass"]
    for field in struct.fields:
        fresh = f"[] if {field.name} is EMPTY else " if _parameter_default(field) == "EMPTY" else ""
        lines.append(f"    self.{field.name} = {fresh}{field.name}")
    exec("\n".join(lines), namespace)  # noqa: S102 - the source is made from our own schema files
    slots = tuple(field.name for field in struct.fields)
    body = {"__slots__": slots, "__init__": namespace["__init__"], "__module__": "bearlake.protocols.kafka.messages"}
    return type(struct.name, (Message,), body | attributes)


def _parameter_default(field: Field) -> str:
    source = default_source(field)
    return "EMPTY" if source == "[]" else source
