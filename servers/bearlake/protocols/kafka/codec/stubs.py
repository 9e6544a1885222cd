"""Writes `messages/__init__.pyi`, which declares the generated message classes for readers and type checkers.

python -m bearlake.protocols.kafka.codec.stubs          # run after changing a schema file; a test compares the result
"""

from collections.abc import Iterator
from pathlib import Path

from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.schema import FIXED, Field, Schema, Struct, load

STUB = Path(__file__).parent.parent / "messages" / "__init__.pyi"

_HEAD = '''"""Written by `python -m bearlake.protocols.kafka.codec.stubs` from the schema files; do not edit."""

from typing import ClassVar, dataclass_transform

from bearlake.protocols.kafka.codec.classes import Message
from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.wire import Records

@dataclass_transform(kw_only_default=True)
class _Struct(Message): ...
'''


def render() -> str:
    """The text of the stub file."""
    apis = [load(key) for key in ApiKey]
    lines = [
        line for api in apis for line in (*_message(api.request, "memoryview"), *_message(api.response, "Records"))
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _message(schema: Schema, records: str) -> Iterator[str]:
    """The lines of one message. `records` is the type of its records: the server reads those of requests, writes those of responses."""
    yield from ("", f"class {schema.root.name}(_Struct):")
    yield "    api_key: ClassVar[ApiKey]"
    for struct in schema.structs.values():
        yield f"    class {struct.name}(_Struct):"
        for field in struct.fields:
            yield f"        {_field(field, schema.root, records)}"
        yield ""
    for field in schema.root.fields:
        yield f"    {_field(field, schema.root, records)}"


def _field(field: Field, root: Struct, records: str) -> str:
    if field.is_struct:
        type_ = f"{root.name}.{field.type}"
    elif field.type in FIXED:
        type_ = {"bool": "bool", "uuid": "bytes", "float64": "float"}.get(field.type, "int")
    else:
        type_ = {"string": "str", "bytes": "bytes", "records": records}[field.type]
    if field.is_array:
        type_ = f"list[{type_}]"
    is_nullable = bool(field.null_versions) or field.default is None
    return f"{field.name}: {type_}{' | None' if is_nullable else ''} = ..."


if __name__ == "__main__":
    STUB.write_text(render(), encoding="utf-8")
