"""Imports pyarrow on the first call that needs it, because most servers never carry Arrow payloads (pyarrow: 0.2 s, 40 MB)."""

import asyncio
import importlib
from functools import cache

from bearlake.errors import Unsupported

_MODULES = ("bearlake.table.ipc_decode", "bearlake.table.ipc_encode", "bearlake.table.ipc_rows")


async def load() -> None:
    """Import the modules of `table` that need pyarrow off the event loop. Raises `Unsupported` if pyarrow is not installed."""
    if _import.cache_info().currsize:
        return
    try:
        await asyncio.to_thread(_import)
    except ImportError as error:
        raise Unsupported(f"Arrow payloads need pyarrow: install bearlake[history] on the server ({error})") from error


@cache
def _import() -> None:
    for name in _MODULES:
        importlib.import_module(name)
