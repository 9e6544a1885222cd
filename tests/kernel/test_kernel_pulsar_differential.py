"""The native and the Python transcoding of Pulsar entries agree on every input, hostile ones included: same bytes, same errors."""

from collections.abc import Callable
from struct import Struct
from types import ModuleType
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from bearlake.errors import BearlakeError
from bearlake.kernel import fallback
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata
from bearlake.records.codec import Record, encode
from fixtures.pulsar_entries import ENTRIES, INT64, Singles, batches, damaged, pack

SETTINGS = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LIMITS = st.one_of(st.just(10**6), st.integers(-1, 200))
DELTA, ATTRIBUTES, COUNT = (23, Struct(">i")), (21, Struct(">h")), (57, Struct(">i"))


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (BearlakeError, ValueError, BufferError) as error:
        return type(error), str(error)


@st.composite
def sent(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Metadata and payload of an entry that is mostly valid."""
    head, messages = draw(batches())
    if not draw(st.integers(0, 9)):
        head.num_messages_in_batch = draw(st.integers(-1, 9))
    return draw(damaged(head.SerializeToString())), draw(damaged(pack(messages)))


@SETTINGS
@given(entry=sent(), is_opaque=st.booleans())
def test_batches_of_entries_agree(native: ModuleType, entry: tuple[bytes, bytes], is_opaque: bool) -> None:
    arguments = (*entry, is_opaque)

    assert outcome(native.encode_entry, *arguments) == outcome(fallback.encode_entry, *arguments)


@SETTINGS
@given(head=ENTRIES, payload=st.binary(max_size=9), is_opaque=st.booleans())
def test_batches_of_single_messages_agree(
    native: ModuleType, head: MessageMetadata, payload: bytes, is_opaque: bool
) -> None:
    arguments = (head.SerializeToString(), payload, is_opaque)

    assert outcome(native.encode_entry, *arguments) == outcome(fallback.encode_entry, *arguments)


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """A mostly valid batch of a Pulsar client."""
    head, messages = draw(batches())
    if draw(st.booleans()):
        head.ClearField("num_messages_in_batch")
        messages = messages[:1]
    payload = pack(messages)
    batch = bytearray(fallback.encode_entry(head.SerializeToString(), payload, draw(st.integers(0, 5)) == 0)[0])
    return draw(tampered(bytes(batch)))


@st.composite
def tampered(draw: st.DrawFn, batch: bytes) -> bytes:
    """The batch with other numbers in its header, or other records."""
    out = bytearray(batch[:61]) + draw(damaged(batch[61:]))
    for at, number in (DELTA, COUNT):
        if not draw(st.integers(0, 9)):
            number.pack_into(out, at, draw(st.one_of(st.integers(-1, 5), st.just(2**31 - 1))))
    if not draw(st.integers(0, 5)):
        ATTRIBUTES[1].pack_into(out, ATTRIBUTES[0], draw(st.sampled_from([0x08, 0x10, 0x20, 0x28])))
    return bytes(out)


NAMES = st.sampled_from(["__pulsar.entry", "__pulsar.message", "a", "", "\udcff", "\xe9"])
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=4),
    batches().flatmap(lambda batch: damaged(b"\1\2" + batch[0].SerializeToString())),
    batches().flatmap(lambda batch: damaged(batch[1][0][0].SerializeToString())),
)
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.one_of(st.none(), st.binary(max_size=4), st.just("\xe9".encode())),
        value=st.one_of(st.none(), st.binary(max_size=4)),
        headers=st.lists(st.tuples(NAMES, VALUES), max_size=3).map(tuple),
        timestamp=st.one_of(st.integers(-1, 5), st.integers(-1, 2**63 - 2)),
    ),
    min_size=1,
    max_size=3,
)


def check(native: ModuleType, batch: bytes, base_offset: int, limit: int) -> None:
    for records in (None, batch[61:]):
        arguments = (batch if records is None else batch[:61], records)
        assert outcome(native.decode_entry, *arguments, base_offset, limit) == outcome(
            fallback.decode_entry, *arguments, base_offset, limit
        )
        assert outcome(native.entry_routing, *arguments) == outcome(fallback.entry_routing, *arguments)


@SETTINGS
@given(batch=stored(), base_offset=INT64, limit=LIMITS)
def test_entries_of_pulsars_batches_agree(native: ModuleType, batch: bytes, base_offset: int, limit: int) -> None:
    check(native, batch, base_offset, limit)


@SETTINGS
@given(records=RECORDS, data=st.data(), base_offset=INT64, limit=LIMITS)
def test_entries_of_kafkas_batches_agree(
    native: ModuleType, records: list[Record], data: st.DataObject, base_offset: int, limit: int
) -> None:
    check(native, data.draw(tampered(encode(records))), base_offset, limit)


@SETTINGS
@given(batch=st.binary(max_size=90), metadata=st.binary(max_size=40), payload=st.binary(max_size=40))
def test_any_bytes_agree(native: ModuleType, batch: bytes, metadata: bytes, payload: bytes) -> None:
    check(native, batch, 0, 10**6)
    assert outcome(native.encode_entry, metadata, payload, False) == outcome(
        fallback.encode_entry, metadata, payload, False
    )


@SETTINGS
@given(batch=batches(), cut=st.integers(0, 300))
def test_entries_that_are_cut_off_agree(native: ModuleType, batch: tuple[MessageMetadata, Singles], cut: int) -> None:
    head, payload = batch[0].SerializeToString(), pack(batch[1])

    for arguments in ((head[:cut], payload, False), (head, payload[:cut], False)):
        assert outcome(native.encode_entry, *arguments) == outcome(fallback.encode_entry, *arguments)
