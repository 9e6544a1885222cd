"""The gauges of the stream service: what its queues, buffers and caches hold, and their limits."""

from bearlake.cache.objects import CacheSettings, ObjectCache
from bearlake.index.tail import TailIndex
from bearlake.streams.history import History, HistorySettings
from bearlake.streams.writer import Writer
from bearlake.streams.writer_settings import WriterSettings
from bearlake.telemetry import metrics


def expose_writes(writer: Writer, settings: WriterSettings) -> None:
    """Show what waits to be written."""
    metrics.APPEND_BUDGET_BYTES.set(settings.bytes_max)
    metrics.APPEND_IN_FLIGHT_BYTES.set_function(lambda: writer.pending_bytes)
    metrics.APPEND_BUDGET_BATCHES.set(settings.batch_count_max)
    metrics.APPEND_IN_FLIGHT_BATCHES.set_function(lambda: writer.pending_count)
    metrics.APPEND_OPEN_PUTS.set_function(lambda: writer.put_count)


def expose_reads(tail: TailIndex, slice_count_max: int, cache: ObjectCache, settings: CacheSettings) -> None:
    """Show the tail index and the object cache."""
    metrics.INDEX_SLICES_MAX.set(slice_count_max)
    metrics.INDEX_SLICES.set_function(lambda: tail.slice_count)
    metrics.CACHE_BYTES_MAX.set(settings.bytes_max)
    metrics.CACHE_BYTES.set_function(lambda: cache.size_bytes)


def expose_history(history: History, settings: HistorySettings) -> None:
    """Show what is kept and read ahead for consumers that lag behind the tail index."""
    metrics.HISTORY_BYTES_MAX.set(settings.block_bytes_max)
    metrics.HISTORY_BYTES.set_function(lambda: history.block_bytes)
    metrics.HISTORY_AHEAD_BYTES_MAX.set(settings.read_ahead_bytes_max)
    metrics.HISTORY_AHEAD_BYTES.set_function(lambda: history.ahead_bytes)
    metrics.HISTORY_READERS.set_function(lambda: history.reader_count)
    metrics.HISTORY_PIECES_MAX.set(settings.piece_count_max)
    metrics.HISTORY_PIECES.set_function(lambda: history.piece_count)
