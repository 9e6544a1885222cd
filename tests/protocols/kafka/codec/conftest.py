"""Random messages of every API, kind and version, reproducible from their seed."""

import random
import uuid
from dataclasses import dataclass

import pytest

from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec.classes import struct_class
from bearlake.protocols.kafka.codec.schema import Field, Struct, load

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


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
        fields = [field for field in struct.fields if self.version in field.versions]
        return struct_class(self.top, struct)(**{one.name: self.field(one) for one in fields})

    def field(self, one: Field):
        if one.tag is not None and self.random.random() < 0.5:
            return [] if one.default == () else one.default
        if self.version in one.null_versions and self.random.random() < 0.25:
            return None
        if one.is_array:
            long = 130 if one.type in BITS else 3
            return [self.value(one) for _ in range(self.random.choice([0, 1, 2, 3, long]))]
        value = self.value(one)
        while one.tag is not None and one.is_struct and value == type(value)():
            value = self.value(one)  # a tagged struct of defaults is what the oracles leave out, and we write as None
        return value

    def value(self, one: Field):
        if one.is_struct:
            return self.struct(self.schema.structs[one.type])
        if one.type == "bool":
            return self.random.random() < 0.5
        if one.type in BITS:
            return self.number(one)
        if one.type == "float64":
            return self.random.choice([0.0, -1.5, 1e300, self.random.random()])
        if one.type == "uuid":
            return uuid.UUID(int=self.random.getrandbits(128) | 1).bytes
        size = self.random.choice([0, 1, 5, 126, 127, 128, 300, 5000])
        if one.type == "string":
            return "".join(self.random.choice("abc-é漢😀") for _ in range(size))
        return self.random.randbytes(size)

    def number(self, one: Field):
        """Any integer; if tame, none that kio refuses.

        kio makes error codes members of an enumeration, and timestamps and durations those of the datetime module, which end
        with the year 9999.
        """
        high = 2 ** (BITS[one.type] - 1)
        if not self.is_tame:
            return self.random.choice([0, 1, -1, -high, high - 1, self.random.randrange(-high, high)])
        if "error_code" in one.name:
            return self.random.choice([0, -1, 1, 3, 6, 42, 79])
        if one.name.endswith(("_ms", "timestamp")):
            return self.random.choice([0, 1, 999, 1_700_000_000_123 % high, self.random.randrange(high) % 2**40])
        return self.random.choice([1, -1, -high, high - 1, self.random.randrange(-high, high)])


@pytest.fixture
def samples():
    return Samples()


@pytest.fixture
def tame_samples():
    return Samples(is_tame=True)


def pytest_generate_tests(metafunc):
    """Tests that ask for `api` and `kind` run for every message that has a schema."""
    if {"api", "kind"} <= set(metafunc.fixturenames):
        cases = [(key, kind) for key in codec.ApiKey for kind in ("request", "response")]
        metafunc.parametrize(("api", "kind"), cases, ids=[f"{key.name.lower()}-{kind}" for key, kind in cases])
