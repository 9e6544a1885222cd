"""kio and kafka-python read our bytes as the same values and write the same bytes; we read theirs.

kio 0.6.5 begins at Kafka 4's versions (no Produce 0-2). It holds a zero UUID as None and refuses some numbers, see
`Samples.number`; it raises KeyError on unknown tags, so that only fields of its own version are sent to it.
kafka-python 3.0 turns authorized operations into sets: their values are left out of the comparison by name. It reads an
ApiVersions response with an error as version 0, whatever its version.
"""

import dataclasses
import datetime
import importlib
import io
import random
import re
import types
import typing
import uuid
import warnings

import kio.index
import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec.schema import FIXED, load

SEEDS = range(4)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its resources by a deprecated function
    KAFKA_PYTHON = [
        importlib.import_module(f"kafka.protocol.{name}")
        for name in ("admin", "consumer", "metadata", "producer", "sasl")
    ]
    load_json = importlib.import_module("kafka.protocol.schemas").load_json


UNKNOWN_TO_KAFKA_PYTHON = frozenset(key for key in codec.ApiKey if "SHARE" in key.name)
"""Kafka-python has no share groups; kio has."""


NEWER = {codec.ApiKey.TXN_OFFSET_COMMIT: 6}
"""The first version that neither kafka-python nor kio knows: it is from Kafka 4.4."""


def known_versions(key):
    return [version for version in codec.versions(key) if version < NEWER.get(key, version + 1)]


def kafka_python_class(name):
    return next(getattr(module, name) for module in KAFKA_PYTHON if hasattr(module, name))


def kio_class(key, kind, version):
    module = kio.index.load_payload_module(int(key), version, EntityType[kind])
    return getattr(module, getattr(load(key), kind).root.name)


def kio_versions(key):
    return [version for version in known_versions(key) if (key, version) not in [(0, 0), (0, 1), (0, 2)]]


def encoded(key, kind, version, message):
    return b"".join(getattr(codec, kind)(key, version).encode(message))


def test_our_schemas_agree_with_those_of_kafka_python(api, kind):
    if api in UNKNOWN_TO_KAFKA_PYTHON:
        return
    schema = getattr(load(api), kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = load_json(schema.root.name)
    structs = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}

    assert theirs["apiKey"] == api
    for version in known_versions(api):
        assert load(api).is_flexible(version) == covers(theirs["flexibleVersions"], version)
        assert our_facts(schema, schema.root, version) == their_facts(theirs["fields"], structs, version)


def our_facts(schema, struct, version):
    found = []
    for field in struct.fields:
        if version in field.versions:
            inner = our_facts(schema, schema.structs[field.type], version) if field.is_struct else field.type
            default = [] if field.default == () else field.default
            found.append((field.name, inner, field.is_array, version in field.null_versions, field.tag, default))
    return found


def their_facts(fields, structs, version):
    found = []
    for field in fields:
        if covers(field["versions"], version):
            type_ = field["type"].removeprefix("[]")
            is_array = type_ != field["type"]
            inner = (
                their_facts(field.get("fields") or structs[type_], structs, version) if type_[0].isupper() else type_
            )
            is_nullable = covers(field.get("nullableVersions", "none"), version)
            default = their_default(field.get("default"), "array" if is_array else type_)
            found.append((snake(field["name"]), inner, is_array, is_nullable, field.get("tag"), default))
    return found


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def covers(versions, version):
    if versions == "none":
        return False
    first, _, last = versions.rstrip("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))


def their_default(text, type_):
    if text == "null" or type_[0].isupper():
        return None
    if type_ == "bool":
        return text in (True, "true")
    zero = {"array": [], "string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "float64": 0.0}
    return text or zero[type_] if type_ in zero else int(str(text or 0), 0)


def test_kafka_python_reads_our_values_and_writes_our_bytes(api, kind, samples):
    if api in UNKNOWN_TO_KAFKA_PYTHON:
        return
    theirs = kafka_python_class(getattr(load(api), kind).root.name)

    for version in known_versions(api):
        for seed in SEEDS:
            message = samples.message(api, kind, version, seed)
            if api == codec.ApiKey.API_VERSIONS and kind == "response":
                message.error_code = 0
            payload = encoded(api, kind, version, message)
            read = theirs.decode(payload, version=version)
            assert_same_values(message, read, version)
            if not any("authorized_operations" in name for name in names_inside(message)):
                read._header = None  # noqa: SLF001 - kafka-python's decode forgets it, and its encode wants it
                assert bytes(read.encode(version=version)) == payload


def names_inside(message):
    for name in message.__slots__:
        yield name
        value = getattr(message, name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, codec.Message):
                yield from names_inside(inner)


def assert_same_values(ours, theirs, version):
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_field, their_field in zip(ours, theirs, strict=True):
            assert_same_values(our_field, their_field, version)
    elif isinstance(ours, codec.Message):
        for name in ours.__slots__:
            value = getattr(ours, name)
            if "authorized_operations" in name:
                continue
            if not hasattr(theirs, name):  # a field of a newer version
                assert value in (None, codec.UUID_ZERO)
                continue
            is_absent_struct = value is None and getattr(theirs, name) is not None
            if not is_absent_struct:
                assert_same_values(value, getattr(theirs, name), version)
    elif isinstance(theirs, uuid.UUID):
        assert ours == theirs.bytes
    elif theirs is None:
        assert ours in (None, codec.UUID_ZERO)
    else:
        assert ours == theirs


def test_kio_reads_and_writes_our_bytes(api, kind, tame_samples):
    for version in kio_versions(api):
        theirs = kio_class(api, kind, version)
        for seed in SEEDS:
            payload = encoded(api, kind, version, tame_samples.message(api, kind, version, seed))
            read, end = entity_reader(theirs)(payload, 0)
            assert end == len(payload)
            assert kio_bytes(theirs, read) == payload


def kio_bytes(theirs, value):
    out = io.BytesIO()
    entity_writer(theirs)(out, value)
    return out.getvalue()


def test_we_read_and_write_the_bytes_of_kio(api, kind):
    for version in kio_versions(api):
        theirs = kio_class(api, kind, version)
        ours = getattr(codec, kind)(api, version)
        for seed in SEEDS:
            payload = kio_bytes(theirs, kio_value(theirs, random.Random(f"{api}-{kind}-{version}-{seed}")))
            assert b"".join(ours.encode(ours.decode(memoryview(payload)))) == payload


def kio_value(theirs, rng):
    """A random message of kio's, with every tagged field set."""
    return theirs(**{field.name: kio_field(field, field.type, rng) for field in dataclasses.fields(theirs)})


def kio_field(field, type_, rng):
    if typing.get_origin(type_) is tuple:
        return tuple(kio_field(field, typing.get_args(type_)[0], rng) for _ in range(rng.randrange(1, 4)))
    if isinstance(type_, types.UnionType) or typing.get_origin(type_) is typing.Union:
        inner = [arg for arg in typing.get_args(type_) if arg is not type(None)]
        is_null = rng.random() < 0.25 and "tag" not in field.metadata
        return None if is_null else kio_field(field, inner[0], rng)
    if dataclasses.is_dataclass(type_):
        return kio_value(type_, rng)
    return kio_simple(field.metadata["kafka_type"], rng)


def kio_simple(kafka_type, rng):
    if kafka_type == "uint16":
        return rng.randrange(1, 2**16)
    if kafka_type in ("int8", "int16", "int32", "int64"):
        return rng.randrange(1, 2 ** (8 * codec_size(kafka_type) - 1))
    return {
        "bool": lambda: rng.random() < 0.5,
        "float64": rng.random,
        "bytes": lambda: rng.randbytes(rng.randrange(200)),
        "records": lambda: rng.randbytes(rng.randrange(5000)),
        "string": lambda: "".join(rng.choice("aé漢") for _ in range(rng.randrange(1, 100))),
        "uuid": lambda: uuid.UUID(int=rng.getrandbits(128) | 1),
        "error_code": lambda: rng.choice(list(ErrorCode)),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.randrange(1, 2**31)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.randrange(1, 2**31)),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(rng.randrange(2**31), datetime.UTC),
    }[kafka_type]()


def codec_size(kafka_type):
    return {"b": 1, "h": 2, "i": 4, "q": 8}[FIXED[kafka_type]]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kio_has_no_produce_below_version_3(version):
    with pytest.raises(kio.index.UnknownEntity):
        kio_class(codec.ApiKey.PRODUCE, "request", version)
