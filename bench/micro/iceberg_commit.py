"""Micro benchmark of the checks of the Iceberg REST catalog: one commit of another engine that replaces 1,000 files of a stream's table.

    .venv/bin/python bench/micro/iceberg_commit.py [--files 1000] [--latency-ms 30]

A folder is the object store; `--latency-ms` makes every size and read of data files wait as long as a request to S3. The engine is
PyIceberg, which has written its files before the clock starts. Shown: the commit's whole request, and in it the walk of the manifests
before they are decoded.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from bearlake.objects import ByteRange
from bearlake.objects.local import LocalObjectStore, LocalSettings
from bearlake.table.model import DataFile as OurFile
from bearlake.table.warehouse import contents
from bearlake.table.warehouse.avro import Budget
from fixtures.catalog_server import CatalogNode, catalog_server
from fixtures.tables import commit_of

ROWS_PER_FILE = 5


class FarStore(LocalObjectStore):
    """A folder whose data files are as far away as those of S3."""

    latency_s = 0.0
    request_count = 0

    async def size(self, key: str) -> int:
        """As the folder's, later."""
        await self._wait(key)
        return await super().size(key)

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """As the folder's, later."""
        await self._wait(key)
        return await super().read(key, ranges)

    async def _wait(self, key: str) -> None:
        if key.endswith(".parquet"):
            FarStore.request_count += 1
            await asyncio.sleep(self.latency_s)


class Walks:
    """Takes the time of every walk of a manifest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes = 0
        self._plain = contents.plain
        contents.plain = self._timed

    def _timed(self, content: bytes, path: str, budget: Budget) -> bytes:
        start = time.perf_counter()
        found = self._plain(content, path, budget)
        self.seconds += time.perf_counter() - start
        self.bytes += len(found)
        return found


def described(server: CatalogNode, file: OurFile) -> DataFile:
    """Return the file as an engine describes it."""
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{server.store_url}/{file.key}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.row_count,
        file_size_in_bytes=file.size,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
    )
    made.spec_id = 0
    return made


async def measured(file_count: int, latency_ms: float, folder: Path) -> dict[str, Any]:
    """Return the figures of one commit."""
    async with catalog_server(folder, limits={"file_count_max": file_count}) as server:
        stream, work = await server.stream("orders")
        ranges = [(at * ROWS_PER_FILE, (at + 1) * ROWS_PER_FILE) for at in range(file_count)]
        first = [await work.append(at + 1, *span) for at, span in enumerate(ranges)]
        await server.tables.commit(stream, commit_of(*first), closed_tasks=[])
        again = [described(server, await work.file(0, *span)) for span in ranges]
        far = FarStore(folder / "objects", LocalSettings(fsync=False))
        far.latency_s = latency_ms / 1000
        server.tables.bridge.store = far
        walks, begin = Walks(), 0.0

        def replace(catalog: RestCatalog) -> float:
            nonlocal begin
            table = catalog.load_table("streams.orders")
            with table.transaction() as transaction:
                transaction.delete("_offset >= 0")
                with transaction.update_snapshot().fast_append() as append:
                    for file in again:
                        append.append_data_file(file)
                begin = time.perf_counter()
            return time.perf_counter() - begin

        seconds = await server.client(replace)
        await far.close()
        return {
            "files": file_count,
            "requests for data files": FarStore.request_count,
            "latency of a request, ms": latency_ms,
            "commit, s": round(seconds, 2),
            "walk of manifests, s": round(walks.seconds, 3),
            "manifests, uncompressed bytes": walks.bytes,
        }


def main() -> None:
    """Measure once, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--latency-ms", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in asyncio.run(measured(options.files, options.latency_ms, Path(folder))).items():
            print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
