"""Descriptors of Protobuf schemas as typed columns: whatever a file's footer holds is mapped or refused, and the columns hold a message."""

import pyarrow as pa

from bearlake.table.typed import codec, descriptors, mapping, protobuf
from bearlake.table.typed.model import SchemaError, SchemaType
from fixtures.protobuf_cases import PROTO2, PROTO3, files_of
from fuzz.target import Choices, Target


def maps(data: bytes) -> object:
    """Map descriptors: the input has the last file's; decode a few bytes by them, and by what one message needs of them."""
    choices = Choices(data)
    levels, width = choices.of((16, 16, 2, 1)), choices.of((1000, 1000, 20, 3))
    index = choices.byte()
    files = [*files_of(PROTO2)[:-1], choices.rest]
    columns = protobuf.columns_of(files, (index,), levels_max=levels, columns_max=width)
    decoded = codec.decode(columns, pa.array([b"", b"\x08\x01", b"\x12\x02\x08\x01"], pa.binary()), is_verified=True)
    decoded.struct.validate(full=True)
    pruned = descriptors.of_message(descriptors.text_of(files), (index,))
    again = mapping.columns_of(SchemaType.PROTOBUF, pruned, levels_max=levels, columns_max=width)
    assert (again.nodes, again.wires, again.fields) == (columns.nodes, columns.wires, columns.fields)
    return sorted({column.type.partition("(")[0] for column in columns.fields}), decoded.is_exact.to_pylist()


TARGETS = [
    Target(
        name="typed descriptors",
        seeds=lambda: (
            [bytes([0, 0, index]) + files_of(PROTO2)[-1] for index in range(6)] + [bytes(3) + files_of(PROTO3)[-1]]
        ),
        run=maps,
        errors=(SchemaError,),
        memory_bytes=32 << 20,
        processor_s=0.4,
        short_inputs=250,
    ),
]
