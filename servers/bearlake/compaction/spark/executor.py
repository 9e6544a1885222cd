"""The code in Spark's Python workers: runs one work item, from JSON to JSON.

A worker process is long-lived and runs many items, one at a time. It keeps its event loop and its object store (with connections). The
store is opened from a URL and settings without secrets. Credentials come from the executor's own environment: the same variables, role or
mounted file as on every server. Spark's configuration, pages, logs and job files therefore contain no secrets.
"""

import asyncio
import atexit
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bearlake.compaction.encoding import decode_item, encode_item_result
from bearlake.compaction.task import run
from bearlake.compaction.workbench import TaskLimits, Workbench
from bearlake.errors import BearlakeError, Invalid
from bearlake.objects import ObjectStore
from bearlake.objects.open import ObjectStoreSettings, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFunction:
    """The function that Spark maps over encoded work items."""

    store_url: str
    store_settings: ObjectStoreSettings
    limits: TaskLimits

    def __call__(self, encoded: str) -> str:
        """Return JSON `{"result": …}` or `{"error": kind, "message": …}`: an error in one item must not end a job of many."""
        try:
            return json.dumps({"result": _worker_context(self).run(encoded)})
        except BearlakeError as error:
            return json.dumps({"error": type(error).__name__, "message": str(error), "process": os.getpid()})
        except Exception as error:  # noqa: BLE001 (boundary: a bug in one item is that item's failure)
            return json.dumps({"error": Invalid.__name__, "message": repr(error), "process": os.getpid()})


class _WorkerContext:
    """An event loop, a store and a thread for all items of this process."""

    def __init__(self, function: ItemFunction) -> None:
        self._runner = asyncio.Runner()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self._workbench = replace(Workbench(limits=function.limits), threads=self._threads)
        self._store: ObjectStore = open_store(function.store_url, function.store_settings)
        atexit.register(self.close)

    def run(self, encoded: str) -> str:
        """Run an encoded item; return the encoded result."""
        result = self._runner.run(run(decode_item(encoded), self._store, self._workbench))
        return encode_item_result(result).decode()

    def close(self) -> None:
        """Release connections and threads."""
        self._runner.run(self._store.close())
        self._threads.shutdown()
        self._runner.close()


_contexts: dict[ItemFunction, _WorkerContext] = {}


def _worker_context(function: ItemFunction) -> _WorkerContext:
    """Return the event loop, store and thread of this process, which runs one function at a time."""
    if function not in _contexts:
        for other in _contexts.values():
            atexit.unregister(other.close)
            other.close()
        _contexts.clear()
        _contexts[function] = _WorkerContext(function)
    return _contexts[function]
