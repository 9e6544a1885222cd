"""The .proto file documents everything: every service, method, message, field, enum and value has a comment."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from bearlake.protocols.grpc.proto import generate

MESSAGE, ENUM, SERVICE = (
    FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER,
    FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER,
    FileDescriptorProto.SERVICE_FIELD_NUMBER,
)
FIELD, ONEOF, VALUE, METHOD = DescriptorProto.FIELD_FIELD_NUMBER, DescriptorProto.ONEOF_DECL_FIELD_NUMBER, 2, 2


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorProto:
    """The parsed file with its comments, from protoc."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools compiles the .proto file")
    target = tmp_path_factory.mktemp("proto") / "set"
    paths = [f"--proto_path={path}" for path in generate.include_folders()]
    assert protoc.main(["", *paths, "--include_source_info", f"--descriptor_set_out={target}", generate.SOURCE]) == 0
    return FileDescriptorSet.FromString(Path(target).read_bytes()).file[0]


def places(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    """(path, name) of every element that needs a comment. Synthetic oneofs (of optional fields) are not in the text."""
    for at, message in enumerate(file.message_type):
        assert not message.nested_type or all(item.options.map_entry for item in message.nested_type)
        yield (MESSAGE, at), message.name
        for number, field in enumerate(message.field):
            yield (MESSAGE, at, FIELD, number), f"{message.name}.{field.name}"
        for number, oneof in enumerate(message.oneof_decl):
            if not oneof.name.startswith("_"):
                yield (MESSAGE, at, ONEOF, number), f"{message.name}.{oneof.name}"
    for at, enum in enumerate(file.enum_type):
        yield (ENUM, at), enum.name
        for number, value in enumerate(enum.value):
            yield (ENUM, at, VALUE, number), f"{enum.name}.{value.name}"
    for at, service in enumerate(file.service):
        yield (SERVICE, at), service.name
        for number, method in enumerate(service.method):
            yield (SERVICE, at, METHOD, number), f"{service.name}.{method.name}"


def test_every_element_of_the_proto_file_has_a_comment(described: FileDescriptorProto) -> None:
    comments = {tuple(item.path): item.leading_comments for item in described.source_code_info.location}

    missing = [name for path, name in places(described) if not comments.get(path, "").strip()]

    assert missing == []
