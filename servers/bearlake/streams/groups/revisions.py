"""Revisions of a group: let the coordinator refuse a forwarded request that arrives late, after its sender gave it up (I12).

The coordinator numbers the requests that it accepts, and stores for each member and partition the number of the last request about it.
A server that forwards a request names the newest number that it knows. The coordinator accepts the request only if no request with a larger
number has a subject in common: then the sender knew all earlier requests about these subjects. So the coordinator refuses a request that
arrives after a later one about the same member or partition, whichever server sent the later one. If the caller still waits, the sender
forwards the request again with the newest number.

    request                     subjects
    join, leave                 the member
    commit                      the member, if the client is a member, and each partition
    deletion of offsets         each partition
    sync                        the member; the request is checked but gets no number

Requests of this server's own clients are never late and name no revision; they are numbered, too.

A revision is valid for one term: from the moment when a server takes the group until it releases the group. Senders treat the text as
opaque, except for `later`. Heartbeats name no revision: a late heartbeat only extends a session.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterable

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.model import MemberRef

Subject = str | PartitionKey
"""The subject of a request: a member (`member_subject`), or a partition whose offset the request changes."""


class Outdated(Exception):
    """An earlier request about the same subject, unknown to the sender, took effect; this request changed nothing."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"the newest revision is {revision}")
        self.revision = revision
        """The newest revision."""


class Revisions:
    """The revisions of one group in one term.

    Stores `count_max` subjects; for forgotten subjects it may refuse requests that are not late. Stores nothing until `newest` is first
    called, because until then no sender can name a revision.
    """

    def __init__(self, count_max: int, term: str | None = None) -> None:
        """`term` must never repeat; None creates a new term."""
        self._term = term or uuid.uuid4().hex
        self._count_max = count_max
        self._is_returned = False
        self._newest = 0
        self._last: OrderedDict[Subject, int] = OrderedDict()
        """The number of each subject's last request, in ascending order."""
        self._forgotten = 0
        """The largest number among the forgotten subjects; used for every subject that is not stored."""

    def __len__(self) -> int:
        """Number of stored subjects."""
        return len(self._last)

    def newest(self) -> str:
        """Return the newest revision, for a sender to name."""
        self._is_returned = True
        return f"{self._term}/{self._newest}"

    def check(self, subjects: Iterable[Subject], named: str) -> None:
        """Raise `Outdated` unless the revision that the sender named covers every request about the subjects."""
        seen = self._seen(named)
        if seen is None or any(self._last.get(subject, self._forgotten) > seen for subject in subjects):
            raise Outdated(self.newest())

    def take(self, subjects: Iterable[Subject], named: str | None) -> None:
        """Accept a request about the subjects; earlier requests that arrive from now on are outdated. Raises `Outdated` as `check`.

        `named` None: a request of this server's own client, treated as naming the newest revision.
        """
        subjects = tuple(subjects)
        if named is not None:
            self.check(subjects, named)
        if not self._is_returned:
            return
        self._newest += 1
        for subject in subjects:
            self._last[subject] = self._newest
            self._last.move_to_end(subject)
        while len(self._last) > self._count_max:
            _, self._forgotten = self._last.popitem(last=False)

    def _seen(self, named: str) -> int | None:
        """Return the number in a revision that `newest` returned in this term; None for any other text."""
        term, _, number = named.rpartition("/")
        if term != self._term or not self._is_returned or not number.isdecimal():
            return None
        seen = int(number)
        return seen if seen <= self._newest else None


def member_subject(member: MemberRef) -> str:
    """Return the subject of a member. A static member keeps its subject when its member id changes."""
    return f"member {member.member_id}" if member.instance_id is None else f"static {member.instance_id}"


def later(known: str, received: str) -> str:
    """Return the later of two revisions that a sender received in this order; answers may arrive out of order."""
    known_term, _, known_number = known.rpartition("/")
    received_term, _, received_number = received.rpartition("/")
    if known_term != received_term or not (known_number.isdecimal() and received_number.isdecimal()):
        return received
    return known if int(known_number) > int(received_number) else received
