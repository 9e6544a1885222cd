"""Random messages of every API, kind and version, reproducible from their seed."""

import random
import uuid
from dataclasses import dataclass

import pytest

from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec.classes import struct_class
from bearlake.protocols.kafka.codec.schema import Field, Struct, load

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}


@dataclass
class Samples:
    """Makes messages. `is_tame` keeps to values that the oracles can hold: see `Samples.number`."""

    is_tame: bool = False

    def message(self, key, kind, version, seed):
        """A message with random values in every field that the version has."""
        self.random = random.Random(f"{key}-{kind}-{version}-{seed}")
        self.version = version
        self.schema = getattr(load(key), kind)
        self.top = getattr(messages, self.schema.root.name)
        return self.struct(self.schema.root)

    def struct(self, struct: Struct):
        """Return a random instance of the struct."""
        fields = [field for field in struct.fields if self.version in field.versions]
        return struct_class(self.top, struct)(**{field.name: self.field(field) for field in fields})

    def field(self, field: Field):
        """Return a random value of the field: an array, null, the default or a single value."""
        if field.tag is not None and self.random.random() < 0.5:
            return [] if field.default == () else field.default
        if self.version in field.null_versions and self.random.random() < 0.25:
            return None
        if field.is_array:
            long = 130 if field.type in BITS else 3
            return [self.value(field) for _ in range(self.random.choice([0, 1, 2, 3, long]))]
        value = self.value(field)
        while field.tag is not None and field.is_struct and value == type(value)():
            value = self.value(field)  # a tagged struct of defaults is what the oracles leave out, and we write as None
        return value

    def value(self, field: Field):
        """Return a random single value of the field's type."""
        if field.is_struct:
            return self.struct(self.schema.structs[field.type])
        if field.type == "bool":
            return self.random.random() < 0.5
        if field.type in BITS:
            return self.number(field)
        if field.type == "float64":
            return self.random.choice([0.0, -1.5, 1e300, self.random.random()])
        if field.type == "uuid":
            return uuid.UUID(int=self.random.getrandbits(128) | 1).bytes
        size = self.random.choice([0, 1, 5, 126, 127, 128, 300, 5000])
        if field.type == "string":
            return "".join(self.random.choice("abc-é漢😀") for _ in range(size))
        return self.random.randbytes(size)

    def number(self, field: Field):
        """Any integer; if tame, none that kio refuses.

        kio makes error codes members of an enumeration, and timestamps and durations those of the datetime module, which end
        with the year 9999.
        """
        if field.type.startswith("u"):
            return self.random.choice([1, 2 ** BITS[field.type] - 1, self.random.randrange(2 ** BITS[field.type])])
        high = 2 ** (BITS[field.type] - 1)
        if not self.is_tame:
            return self.random.choice([0, 1, -1, -high, high - 1, self.random.randrange(-high, high)])
        if "error_code" in field.name:
            return self.random.choice([0, -1, 1, 3, 6, 42, 79])
        if field.name.endswith(("_ms", "timestamp")):
            return self.random.choice([0, 1, 999, 1_700_000_000_123 % high, self.random.randrange(high) % 2**40])
        return self.random.choice([1, -1, -high, high - 1, self.random.randrange(-high, high)])


@pytest.fixture
def samples():
    """Random messages."""
    return Samples()


@pytest.fixture
def tame_samples():
    """Random messages that other implementations can represent."""
    return Samples(is_tame=True)


NOT_IN_KAFKA_PYTHON = {
    codec.ApiKey.CONSUMER_GROUP_HEARTBEAT,
    codec.ApiKey.CONSUMER_GROUP_DESCRIBE,
    codec.ApiKey.STREAMS_GROUP_HEARTBEAT,
    codec.ApiKey.STREAMS_GROUP_DESCRIBE,
}
"""Messages that kafka-python does not have; kio and our own tables check them."""


def pytest_generate_tests(metafunc):
    """Tests that ask for `api` and `kind` run for every message that has a schema."""
    if {"api", "kind"} <= set(metafunc.fixturenames):
        cases = [(key, kind) for key in codec.ApiKey for kind in ("request", "response")]
        if "kafka_python" in metafunc.function.__name__:
            cases = [(key, kind) for key, kind in cases if key not in NOT_IN_KAFKA_PYTHON]
        metafunc.parametrize(("api", "kind"), cases, ids=[f"{key.name.lower()}-{kind}" for key, kind in cases])
