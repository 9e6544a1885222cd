"""Loads aiohttp without the machine's authorities, which it would read twice while it is imported (decision 362).

aiohttp makes the TLS contexts of its clients when it is imported: a tenth of a server's start, and 2 MB. Here these contexts read the
authorities with their first connection, and are ordinary contexts from then on. That would stop the event loop for 50 ms, so a process that
may connect with TLS calls `read_authorities` at its start.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

_LATE: list[ssl.SSLContext] = []
READS = ("load_default_certs", "set_default_verify_paths")
"""Methods of a TLS context that read the machine's authorities."""


class LateContext(ssl.SSLContext):
    """A TLS context that reads the authorities with its first connection."""

    # Any: the arguments of `ssl.SSLContext`

    @override
    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self.read()
        return self.wrap_bio(*arguments, **options)

    @override
    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        self.read()
        return self.wrap_socket(*arguments, **options)

    def read(self) -> None:
        """Read the authorities, and become an ordinary context. Raises what reading raises; then the next connection tries again."""
        for name, arguments in vars(self)["reads"]:
            getattr(super(), name)(*arguments)
        del vars(self)["reads"]
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]  # a class without state of its own


def load_aiohttp() -> None:
    """Import aiohttp. Call it before anything else imports it."""
    with _late_authorities():
        import aiohttp  # noqa: F401


def read_authorities() -> None:
    """Let all contexts that wait for their first connection read the authorities now. Raises `OSError`."""
    while _LATE:
        context = _LATE.pop()
        if isinstance(context, LateContext):  # nobody has used it yet
            context.read()


@contextmanager
def _late_authorities() -> Iterator[None]:
    """Let contexts that are made in the block read the authorities later."""
    for name in READS:
        setattr(ssl.SSLContext, name, _later(name, getattr(ssl.SSLContext, name)))
    try:
        yield
    finally:
        for name, ordinary in _ORDINARY.items():
            if ordinary is None:
                delattr(ssl.SSLContext, name)  # inherited again
            else:
                setattr(ssl.SSLContext, name, ordinary)


_ORDINARY = {name: vars(ssl.SSLContext).get(name) for name in READS}


def _later(name: str, ordinary: Any) -> Any:  # Any: a method of any signature
    def read(context: ssl.SSLContext, *arguments: Any) -> None:
        if type(context) not in (ssl.SSLContext, LateContext):
            ordinary(context, *arguments)
            return
        vars(context).setdefault("reads", []).append((name, arguments))
        context.__class__ = LateContext
        _LATE.append(context)

    return read
