"""Schemas as typed columns: whatever a registry returns as a schema's text is mapped or refused, and the columns can hold a value."""

import json
from random import Random

import pyarrow as pa

from bearlake.table.typed import codec, mapping
from bearlake.table.typed.model import SchemaError, SchemaType
from fixtures.avro_cases import CASES
from fixtures.avro_random import AvroRandom
from fuzz.mutation import change_json
from fuzz.target import Choices, Target
from fuzz.targets.schemas import TEXTS


def avro(data: bytes) -> object:
    """Map an Avro schema, and decode a few bytes by it."""
    choices = Choices(data)
    levels, width = choices.of((16, 16, 2, 1)), choices.of((1000, 1000, 20, 3))
    text = choices.rest.decode("utf-8", "replace")
    columns = mapping.columns_of(SchemaType.AVRO, text, levels_max=levels, columns_max=width)
    decoded = codec.decode(columns, pa.array([bytes(20), b"\2" * 40], pa.binary()), is_verified=True)
    decoded.struct.validate(full=True)
    return sorted({column.type.partition("(")[0] for column in columns.fields}), decoded.is_exact.to_pylist()


avro(bytes(2) + b'"string"')  # before the run's limit of addresses: Arrow's allocator reserves a gigabyte of them


def _change(random: Random, data: bytearray) -> None:
    rest = data[2:]
    change_json(random, rest)
    data[2:] = rest


def _seeds() -> list[bytes]:
    random = Random(3)
    schemas = [case.schema for case in CASES[::3]] + [AvroRandom(random).record() for _ in range(20)]
    return [bytes(2) + text.encode() for text in [TEXTS[0], *map(json.dumps, schemas)] if len(text) < 3000]


TARGETS = [
    Target(
        name="typed avro schemas",
        seeds=_seeds,
        run=avro,
        errors=(SchemaError,),
        change=_change,
        memory_bytes=32 << 20,
        processor_s=0.3,
        short_inputs=500,
    ),
]
