"""How much the members of groups may say of themselves: ids, subscriptions, protocols' metadata, and a classic group's assignments.

The coordinator keeps all of it in memory, and each save of a group writes what its members said. So all members of a group together have a
limit, and so have all groups of a server. Kafka's limit is its largest record in `__consumer_offsets`, 1 MiB by default.

Members say more after they have joined: the partitions that they own, and the leader's assignment. So a newcomer may take only three
quarters of the group's limit, and the group can still complete its rounds. A server has room for a group that takes no more than all groups
leave free: a few large groups never fill a server, and small groups can rebalance.

Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.
"""

from collections.abc import Iterable

from bearlake.streams.groups.problems import GroupRefusal, Problem

ASSIGNMENTS = ""
"""Stands for a member id: what the leader of a classic group assigned to all members."""
TOPOLOGY = ""
"""Stands for a member id: the topology of a streams group, which stays when all members have left."""


class ServerRoom:
    """What the groups of one server take, in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0


class Room:
    """What each member of one group has said, in bytes."""

    def __init__(self, server: ServerRoom, bytes_max: int) -> None:
        """At most `bytes_max` bytes for this group, and `server.bytes_max` for all groups that share `server`."""
        self._server = server
        self._bytes_max = bytes_max
        self._taken: dict[str, int] = {}
        self.used = 0

    def take(self, member_id: str, octets: int) -> None:
        """Count what a member says now instead of what it said before. Raises `GroupRefusal` as `check`, and counts nothing then."""
        self.check(member_id, octets)
        self.restore(member_id, octets)

    def check(self, member_id: str, octets: int) -> None:
        """Check whether there is room for what a member says now instead of what it said before.

        Raises `GroupRefusal`: GROUP_FULL beyond the group's limit, or beyond a newcomer's; COORDINATOR_UNAVAILABLE if the group would
        take more than the server has free. A member that says less than before is never refused.
        """
        if member_id in self._taken or member_id == ASSIGNMENTS:
            self._check(octets - self._taken.get(member_id, 0), self._bytes_max)
        else:
            self.check_newcomer(octets)

    def check_newcomer(self, octets: int) -> None:
        """Check whether there is room for a new member. Raises as `check`."""
        self._check(octets, self._bytes_max * 3 // 4)

    def _check(self, growth: int, bytes_max: int) -> None:
        if growth <= 0:
            return
        if self.used + growth > bytes_max:
            text = f"the members of the group say more of themselves than the limit of {bytes_max} bytes"
            raise GroupRefusal(Problem.GROUP_FULL, text)
        if self.used + growth > self._server.bytes_max - self._server.used:
            text = f"the group would take more than what is free of this server's limit of {self._server.bytes_max} bytes for all groups"
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, text)

    def restore(self, member_id: str, octets: int) -> None:
        """Count without a limit: `check` has passed, or an earlier coordinator has accepted the member."""
        self._grow(octets - self._taken.get(member_id, 0))
        self._taken[member_id] = octets

    def leave(self, member_id: str) -> None:
        """Forget what a member said, if anything."""
        self._grow(-self._taken.pop(member_id, 0))

    def rename(self, member_id: str, new_id: str) -> None:
        """Give what a member said to its new id, which no other member has."""
        assert new_id not in self._taken, "two members with one id"
        self._taken[new_id] = self._taken.pop(member_id, 0)

    def close(self) -> None:
        """Give everything back."""
        self._grow(-self.used)
        self._taken.clear()

    def _grow(self, octets: int) -> None:
        self.used += octets
        self._server.used += octets


def octets_of(texts: Iterable[str | None]) -> int:
    """Return the size (bytes of UTF-8) of these texts."""
    return sum(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")) for text in texts if text)
