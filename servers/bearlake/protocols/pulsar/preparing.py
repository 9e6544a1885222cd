"""Converts large compressed SENDs in a thread: a small frame may hold 64 MiB, which take half a second to decompress and to compress again.

The connection takes no further frames meanwhile, so its SENDs keep their order.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from bearlake.errors import BearlakeError
from bearlake.protocols.pulsar import entries, framing
from bearlake.protocols.pulsar.entries import Prepared, StoredEntry
from bearlake.protocols.pulsar.proto.metadata_pb2 import NONE

AT_ONCE_BYTES = 256 * 1024
"""Uncompressed bytes of an entry that is converted on the event loop: about 3 ms."""


class Preparer:
    """Converts entries in threads."""

    def __init__(self, uncompressed_bytes_max: int) -> None:
        """`uncompressed_bytes_max`: largest uncompressed payload (bytes); each thread may hold a few times as much."""
        self._bytes_max = uncompressed_bytes_max
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="pulsar-entries")

    def close(self) -> None:
        """Shut down without waiting; pending results are discarded."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def start(self, message: memoryview, done: Callable[[Prepared], object]) -> bool:
        """Begin to convert the message of a SEND, if that is much work; `done` is called in a thread. Returns whether it has begun."""
        try:
            metadata = framing.read_message(message).metadata
        except BearlakeError:
            return False  # answered like any other SEND
        if metadata.compression == NONE or not AT_ONCE_BYTES < metadata.uncompressed_size <= self._bytes_max:
            return False
        copy = memoryview(bytes(message))
        self._threads.submit(lambda: done(self._convert(copy)))
        return True

    def _convert(self, message: memoryview) -> Prepared:
        result: Future[StoredEntry] = Future()
        try:
            metadata, payload = framing.read_message(message)
            result.set_result(entries.to_batch(metadata, payload, self._bytes_max))
        except Exception as error:  # noqa: BLE001 - raised again where the SEND is answered
            result.set_exception(error)
        return result.result
