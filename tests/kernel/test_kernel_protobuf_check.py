"""The native check of Protobuf messages and the Python one agree on every input."""

from random import Random
from types import ModuleType

import pytest

from bearlake.kernel import ProtoCheck, fallback
from bearlake.streams.schemas.formats import protobuf as compiler
from bearlake.table.typed.protobuf_types import MessageTypes
from fixtures.protobuf_cases import google_class
from fixtures.protobuf_random import ProtobufRandom


def test_both_kernels_stop_at_the_same_place(native: ModuleType) -> None:
    random = Random(8)
    for _ in range(40):
        made = ProtobufRandom(random)
        files = [file.SerializeToString() for file in compiler.parsed(made.schema(), {}).files]
        theirs, types = google_class(files), MessageTypes(files)
        content, ends = b"", []
        for _ in range(20):
            message = theirs()
            made.fill(message)
            content += made.spoiled(message.SerializePartialToString())
            ends.append(len(content))
        roots = [random.randrange(len(types.names)) for _ in ends]
        begins = [0, *ends[:-1]]
        arguments = (types.starts, types.parts, *(int32(numbers) for numbers in (roots, begins, ends)), content)
        assert bytes(native.check_protobuf(*arguments)) == bytes(fallback.check_protobuf(*arguments))


def int32(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)


@pytest.mark.parametrize(
    ("starts", "parts", "roots", "begins", "ends"),
    [
        ([], [], [0], [0], [0]),
        ([0], [], [0], [0], [0]),
        ([0, 2], [1, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([1, 0], [1, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([-1, 0], [1, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([0, 1], [0, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([0, 1], [2**29, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([0, 1], [1, len(ProtoCheck), 0], [0], [0], [0]),
        ([0, 1], [1, ProtoCheck.MESSAGE, 1], [0], [0], [0]),
        ([0, 1], [1, ProtoCheck.MESSAGE, -1], [0], [0], [0]),
        ([0, 2], [1, ProtoCheck.TEXT, 0, 1, ProtoCheck.TEXT, 0], [0], [0], [0]),
        ([0, 0], [], [1], [0], [0]),
        ([0, 0], [], [-1], [0], [0]),
        ([0, 0], [], [0], [1], [0]),
        ([0, 0], [], [0], [-1], [0]),
        ([0, 0], [], [0], [0], [3]),
        ([0, 0], [], [0], [0], [0, 0]),
        ([0, 0], [], [0], [], [0]),
    ],
)
def test_malformed_tables_are_refused_alike(
    native: ModuleType, starts: list[int], parts: list[int], roots: list[int], begins: list[int], ends: list[int]
) -> None:
    arguments = [*map(int32, (starts, parts, roots, begins, ends)), b"\x08\1"]
    texts = []
    for module in (native, fallback):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts are compared
            module.check_protobuf(*arguments)
        texts.append(str(caught.value))

    assert texts[0] == texts[1]
