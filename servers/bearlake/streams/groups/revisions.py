"""Revisions of a group's members at its coordinator: how it recognises a request that another server sent and then gave up (I12).

A server that forwards a join, a leave or a commit names the member's revision that it knows. The coordinator takes the request only if
that is the newest one, and taking it makes a newer one. So a request that arrives after a later one of the same member, whichever server
sent that, is refused; its sender, if it still waits, sends it again with the newest revision.

A revision holds for one term: from the moment at which a server takes the group until it gives it up. Its text means nothing to others.
Heartbeats and syncs name none: a late heartbeat gives a session more time, and a late sync is of another generation or changes nothing.
"""

import uuid
from collections import OrderedDict


class Outdated(Exception):
    """The request names a revision that is not the newest one; nothing has changed."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"the newest revision is {revision}")
        self.revision = revision
        """The newest one."""


class Revisions:
    """The revisions of one group in one term; remembers `count_max` members and refuses more than it must for the others."""

    def __init__(self, count_max: int, term: str | None = None) -> None:
        """`term` is unique for ever; None: a new one."""
        self._term = term or uuid.uuid4().hex
        self._count_max = count_max
        self._newest = 0
        self._known: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """The largest number among the members that were forgotten: the revision of all that are not known."""

    def of(self, member: str) -> str:
        """The member's newest revision."""
        return f"{self._term}/{self._known.get(member, self._forgotten)}"

    def advance(self, member: str, named: str) -> None:
        """Take a request of the member that names a revision. Raises `Outdated`."""
        newest = self.of(member)
        if named != newest:
            raise Outdated(newest)
        self._newest += 1
        self._known[member] = self._newest
        self._known.move_to_end(member)
        if len(self._known) > self._count_max:
            _, self._forgotten = self._known.popitem(
                last=False
            )  # the oldest number: larger than all that were forgotten before
