"""Makes `stream_pb2.py` and `stream_pb2.pyi` from the .proto file: `python -m bearlake.protocols.grpc.proto.generate`.

The results are checked in, so that installing needs neither a compiler nor the network; a test fails when they are out of date.
protoc's check that the runtime is as new as itself is left out: the code uses nothing but the message builder, which all of the
tested range of protobuf has.
"""

import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = "bearlake/stream/v1/stream.proto"
DOCSTRING = '"""Messages of bearlake.stream.v1, generated from stream.proto by generate.py: not to be edited."""\n'
HEADERS = {"stream_pb2.py": DOCSTRING, "stream_pb2.pyi": DOCSTRING + '# mypy: disable-error-code="type-arg"\n'}
NAMES = tuple(HEADERS)


def include_folders() -> list[Path]:
    """Folders of .proto files that compiling `SOURCE` needs. Needs grpcio-tools and googleapis-common-protos."""
    import grpc_tools
    from google.rpc import status_pb2

    return [FOLDER, Path(status_pb2.__file__).parents[2], Path(grpc_tools.__file__).parent / "_proto"]


def generate() -> dict[str, str]:
    """Content of the generated files by name."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"--proto_path={path}" for path in include_folders()]
        code = protoc.main(["protoc", *paths, f"--python_out={folder}", f"--pyi_out={folder}", SOURCE])
        assert code == 0, "protoc failed; it has said why"
        made = Path(folder) / SOURCE
        return {name: HEADERS[name] + _portable((made.parent / name).read_text()) for name in NAMES}


def _portable(text: str) -> str:
    """Without what differs between versions of protoc."""
    head, found, rest = text.partition("_runtime_version.ValidateProtobufRuntimeVersion(")
    if found:
        text = head + rest.partition("\n)\n")[2]
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if "runtime_version" not in line and not line.startswith(("# Protobuf Python Version", '"""Generated'))
    )


if __name__ == "__main__":
    for name, content in generate().items():
        (FOLDER / name).write_text(content)
