"""Revisions of a group at its coordinator: how it recognises a request that another server sent and then gave up (I12).

The coordinator numbers the requests that it takes, and remembers for each member and partition the number of the last request about it.
A server that forwards a request names the newest number that it knows. The coordinator takes the request only if none of its subjects is
in a request with a larger number: the sender had seen everything that came before. So a request that arrives after a later one about the
same member or partition is refused, whoever sent that one and however it came. Its sender, if its caller still waits, sends it again with
the newest number.

    request                     subjects
    join, leave                 the member
    commit                      the member, if it is one, and each partition
    deletion of offsets         each partition
    sync                        the member; it is checked and gets no number

A request of this server's own clients is never late, so it names nothing. It is numbered like the others.

A revision holds for one term: from the moment at which a server takes the group until it gives it up. Its text is opaque to senders, but
for `later`. Heartbeats name none: a late heartbeat gives a session more time, and nothing else.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterable

from bearlake.metadata.model import PartitionKey

Subject = str | PartitionKey
"""What a request is about: a member (`member_subject`), or a partition whose offset it changes."""


class Outdated(Exception):
    """The sender has not seen a later request about the same subject; nothing has changed."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"the newest revision is {revision}")
        self.revision = revision
        """The newest one."""


class Revisions:
    """The revisions of one group in one term; remembers `count_max` subjects and refuses more than it must about the others.

    Until the first revision is told, nobody can name one, and nothing is remembered.
    """

    def __init__(self, count_max: int, term: str | None = None) -> None:
        """`term` is unique for ever; None: a new one."""
        self._term = term or uuid.uuid4().hex
        self._count_max = count_max
        self._is_told = False
        self._newest = 0
        self._last: OrderedDict[Subject, int] = OrderedDict()
        """The number of each subject's last request, in ascending order."""
        self._forgotten = 0
        """The largest number among the subjects that were forgotten: it stands for all that are not remembered."""

    def __len__(self) -> int:
        """Subjects that are remembered."""
        return len(self._last)

    def tell(self) -> str:
        """The newest revision, for a sender to name."""
        self._is_told = True
        return f"{self._term}/{self._newest}"

    def check(self, subjects: Iterable[Subject], named: str) -> None:
        """Raise `Outdated` unless the sender that names this revision has seen every request about the subjects."""
        seen = self._seen(named)
        if seen is None or any(self._last.get(subject, self._forgotten) > seen for subject in subjects):
            raise Outdated(self.tell())

    def take(self, subjects: Iterable[Subject], named: str | None) -> None:
        """Take a request about the subjects: earlier ones that did not arrive yet are outdated. Raises `Outdated` as `check`.

        None: the request is of this server's own client, and names the newest revision.
        """
        subjects = tuple(subjects)
        if named is not None:
            self.check(subjects, named)
        if not self._is_told:
            return
        self._newest += 1
        for subject in subjects:
            self._last[subject] = self._newest
            self._last.move_to_end(subject)
        while len(self._last) > self._count_max:
            _, self._forgotten = self._last.popitem(last=False)

    def _seen(self, named: str) -> int | None:
        """The number in a revision of this term that was told; None for any other text."""
        term, _, number = named.rpartition("/")
        if term != self._term or not self._is_told or not number.isdecimal():
            return None
        seen = int(number)
        return seen if seen <= self._newest else None


def member_subject(member_id: str, instance_id: str | None) -> str:
    """The subject of a member. A static member keeps it with a new id."""
    return f"member {member_id}" if instance_id is None else f"static {instance_id}"


def later(known: str, told: str) -> str:
    """The later one of two revisions that a sender was told, in this order; answers may arrive in another one."""
    known_term, _, known_number = known.rpartition("/")
    told_term, _, told_number = told.rpartition("/")
    if known_term != told_term or not (known_number.isdecimal() and told_number.isdecimal()):
        return told
    return known if int(known_number) > int(told_number) else told
