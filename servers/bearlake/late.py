"""Code that most servers never need is loaded with the first request that needs it (decision 362 says which, and why).

    _HANDLERS = Late(_handlers)            one `Late` per protocol or feature, where its requests arrive
    handlers = await _HANDLERS.get()       loads in a thread at first: the event loop goes on meanwhile

The function of a `Late` has the import statements, so that type checker and import contracts see them. What is on the hot path is never
late. `test_late_code.py` loads everything, so that an error of an import does not wait for a request.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")

_ABSENT = object()


class Late(Generic[T]):
    """The result of `load`, which imports what it returns."""

    __slots__ = ("_load", "_loaded")

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._loaded: object = _ABSENT

    async def get(self) -> T:
        """Return the result, at the first call after a thread has loaded it. Raises what `load` raises; then the next call tries again."""
        if self._loaded is _ABSENT:
            self._loaded = await asyncio.to_thread(self._load)
        return cast("T", self._loaded)

    def now(self) -> T:
        """Return the result, loaded in this thread if it must be: at a start, or in a thread of its own."""
        if self._loaded is _ABSENT:
            self._loaded = self._load()
        return cast("T", self._loaded)
