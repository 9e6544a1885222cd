"""A commit made right behind its put, on the thread of the put: two hops between threads less, which are most of a small flush.

Only for the oldest object in flight, so that commits stay in seal order. When it failed, the writer asks again with the same token.
"""

import logging
import time
from collections.abc import Callable

from bearlake.errors import BearlakeError
from bearlake.metadata.model import ObjectCommit, ObjectCommitted

log = logging.getLogger(__name__)


class Attempt:
    """See the module. Whoever claims it first decides: the thread that it is made, or the loop that it never will be."""

    def __init__(self, commit_here: Callable[[ObjectCommit], ObjectCommitted], commit: ObjectCommit) -> None:
        self._commit_here = commit_here
        self._commit = commit
        self._claims = [None]
        self.result: ObjectCommitted | None = None
        self.seconds = 0.0

    def claim(self) -> bool:
        """Whether the caller, on whatever thread, is the first."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Commit, unless it is too late for it."""
        if not self.claim():
            return
        started = time.monotonic()
        try:
            self.result = self._commit_here(self._commit)
        except BearlakeError as error:
            log.warning("commit behind the put failed, asking again", extra={"error": repr(error)})
        self.seconds = time.monotonic() - started
