"""Commits an object on the thread that put it. This saves two thread switches, most of the cost of a small flush.

The writer uses it only for the oldest object in flight, so that commits stay in seal order. If the attempt fails, the writer retries with
the same token.
"""

import logging
import time
from collections.abc import Callable

from bearlake.errors import BearlakeError
from bearlake.metadata.model import ObjectCommit, ObjectCommitted

log = logging.getLogger(__name__)


class Attempt:
    """One attempt to commit. If the put's thread claims it first, the commit runs; if the event loop does, it never runs."""

    def __init__(self, commit_here: Callable[[ObjectCommit], ObjectCommitted], commit: ObjectCommit) -> None:
        self._commit_here = commit_here
        self._commit = commit
        self._claims = [None]
        self.result: ObjectCommitted | None = None
        self.seconds = 0.0

    def claim(self) -> bool:
        """Whether the caller is the first to claim; callable from any thread."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Commit, unless the event loop has claimed the attempt."""
        if not self.claim():
            return
        started = time.monotonic()
        try:
            self.result = self._commit_here(self._commit)
        except BearlakeError as error:
            log.warning("the commit after the put failed; retrying", extra={"error": repr(error)})
        self.seconds = time.monotonic() - started
