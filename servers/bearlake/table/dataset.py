"""Data files in a remote store as a pyarrow dataset. Reads ranges through the object store; never writes.

Source: Apache Arrow, `pyarrow.fs.FileSystemHandler`.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from bearlake.errors import Unsupported
from bearlake.table.io import StoreBridge, StoreInput


def open_dataset(bridge: StoreBridge, keys: Sequence[str], schema: pa.Schema) -> "ds.Dataset":
    """Open the Parquet files as one dataset with these columns, matched by name. Reads nothing yet."""
    filesystem = fs.PyFileSystem(_Handler(bridge))
    parquet = ds.ParquetFileFormat()
    fragments = [parquet.make_fragment(key, filesystem) for key in keys]
    return ds.FileSystemDataset(fragments, schema, parquet, filesystem)


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Maps paths to object keys."""

    def __init__(self, bridge: StoreBridge) -> None:
        self._bridge = bridge

    def get_type_name(self) -> str:
        return "bearlake"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        try:
            return fs.FileInfo(path, fs.FileType.File, size=self._bridge.size(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(StoreInput(self._bridge, self._bridge.locations.location(path)).open(), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *_arguments: object) -> NoReturn:
        raise Unsupported("this file system is read-only")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
