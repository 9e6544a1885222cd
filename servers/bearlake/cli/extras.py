"""Imports that only some commands need: the base install is the command line alone, and its start is short."""

from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

from bearlake.errors import Invalid

T = TypeVar("T")


def server_module(name: str, extra: str = "kafka") -> Any:  # a module
    """Import a module that needs the extra `extra`. Raises `Invalid` when that is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bearlake"):
            raise
        raise Invalid(
            f"this command needs {error.name}, which is not installed: pip install 'bearlake[{extra}]'"
        ) from error


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in a new event loop. Only commands that need asyncio import it: it would take a third of every command's start."""
    import asyncio

    return asyncio.run(work)
