"""Commits in the threads that store objects (decision 29)."""

from collections.abc import Callable

from typing_extensions import override

from bearlake.metadata import BlockingCommit
from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.waiting import Waiting


class CommitHere(BlockingCommit):
    """`metadata.BlockingCommit`."""

    def __init__(self, database: Database, step: Callable[[ObjectCommit], ObjectCommitted], waiting: Waiting) -> None:
        self._database = database
        self._step = step
        self._waiting = waiting

    @override
    def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        return self._database.run_here(self._step, commit)

    @override
    def announce(self, position: int, *, is_applied: bool) -> None:
        self._waiting.note(position) if is_applied else self._waiting.notify(position)
