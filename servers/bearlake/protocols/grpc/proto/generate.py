"""Generates `stream_pb2.py` and `stream_pb2.pyi` from the .proto file: `python -m bearlake.protocols.grpc.proto.generate`.

The generated files are checked in, so that an install needs neither a compiler nor the network; a test fails if they are out of date.
The generator removes protoc's runtime version check: the code uses only the message builder, which every tested protobuf version has.
"""

import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = "bearlake/stream/v1/stream.proto"
DOCSTRING = '"""Messages of bearlake.stream.v1, generated from stream.proto by generate.py: not to be edited."""\n'
HEADERS = {"stream_pb2.py": DOCSTRING, "stream_pb2.pyi": DOCSTRING + '# mypy: disable-error-code="type-arg"\n'}
NAMES = tuple(HEADERS)


def include_folders() -> list[Path]:
    """Return the include folders that compiling `SOURCE` requires. Needs grpcio-tools and googleapis-common-protos."""
    import grpc_tools
    from google.rpc import status_pb2

    return [FOLDER, Path(status_pb2.__file__).parents[2], Path(grpc_tools.__file__).parent / "_proto"]


def generate() -> dict[str, str]:
    """Return the contents of the generated files by name."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        paths = [f"--proto_path={path}" for path in include_folders()]
        code = protoc.main(["protoc", *paths, f"--python_out={folder}", f"--pyi_out={folder}", SOURCE])
        assert code == 0, "protoc failed; its output shows the reason"
        made = Path(folder) / SOURCE
        return {name: HEADERS[name] + _portable((made.parent / name).read_text()) for name in NAMES}


def _portable(text: str) -> str:
    """Remove the parts that differ between protoc versions."""
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
