"""Faults of the network: rules for links (`proxy.py`), and errors that a link returns in the name of the object store."""

import abc
from typing import Any

from typing_extensions import override

from nemesis.process_faults import Fault


class LinkFault(Fault):
    """A rule on some links; the counts of the links prove that the rule took effect."""

    counts: tuple[str, ...]
    """The fault took effect if any of these counts has grown."""

    def links(self) -> list[str]:
        """Draw the links: by default those of one server, of one store, or of one pair."""
        network = self.cluster.network
        store = self.random.choice((">postgresql", ">s3"))
        server = self.pick()
        return self.random.choice(
            [
                [f"{server}{store}"],
                network.matching(store),
                network.matching(f">{server}/") or [f"{server}{store}"],
                network.matching(f"{server}>"),
            ]
        )

    @abc.abstractmethod
    def rule(self) -> dict[str, Any]:
        """Return the rule; see `proxy.py`."""

    @override
    def begin(self) -> str:
        self._links = self.links()
        rule = {**self.rule(), "salt": self.random.getrandbits(30)}
        self._before = {link: self.cluster.network.set_rule(link, rule) for link in self._links}
        shown = {key: value for key, value in rule.items() if key not in ("salt", "mode")}
        return f"{', '.join(self._links)} {shown or ''}".strip()

    @override
    def end(self) -> str | None:
        found: dict[str, int] = {}
        for link in self._links:
            self.cluster.network.set_rule(link, None)
        after = self.cluster.network.counts()
        for link in self._links:
            for name in self.counts:
                grown = after[link].get(name, 0) - self._before[link].get(name, 0)
                found[name] = found.get(name, 0) + grown
        grown_counts = [f"{name} {count}" for name, count in found.items() if count]
        return ", ".join(grown_counts) or None


class Cut(LinkFault):
    """A partition: open and new connections of a pair are reset."""

    name = "partition"
    resources = frozenset({"network"})
    counts = ("reset", "refused")

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "cut"}


class Flap(LinkFault):
    """Open connections are reset once."""

    name = "reset-connections"
    resources = frozenset({"network"})
    seconds = (0.5, 1.0)
    counts = ("reset",)

    def links(self) -> list[str]:
        """Draw links that always have open connections."""
        network = self.cluster.network
        return self.random.choice([network.matching(">postgresql"), network.matching("clients>")])

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "cut", "old": True, "fraction": self.random.choice((0.7, 1.0))}


class Drop(LinkFault):
    """Bytes in one direction, or both, are dropped without an error."""

    name = "drop"
    resources = frozenset({"network"})
    counts = ("dropped_bytes", "dropped_answer_bytes")

    @override
    def rule(self) -> dict[str, Any]:
        return {
            "mode": "drop",
            "direction": self.random.choice(("to_server", "to_client", "both")),
            "fraction": self.random.choice((0.5, 1.0)),
        }


class Delay(LinkFault):
    """Bytes arrive late."""

    name = "delay"
    resources = frozenset({"network"})
    counts = ("delayed_blocks",)

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "delay", "delay_ms": self.random.choice((20, 200, 1000))}


class Hold(LinkFault):
    """Requests to a store are delivered after their clients gave up, and after other clients continued over new connections."""

    name = "deliver-later"
    resources = frozenset({"network"})
    seconds = (6.0, 15.0)
    counts = ("delivered_later_bytes", "delivered_after_client_had_gone")

    @override
    def links(self) -> list[str]:
        store = self.random.choice((">postgresql", ">postgresql", ">s3"))
        return self.random.choice([[f"{self.pick()}{store}"], self.cluster.network.matching(store)])

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "hold", "old": self.random.random() < 0.7, "fraction": self.random.choice((0.5, 1.0))}


class IsolateHolder(LinkFault):
    """A server with leases loses its database but not its clients, while a new group member joins, perhaps through another server.

    Consumers would believe what such a server confirms after another server has taken its place.
    """

    name = "isolate-lease-holder"
    resources = frozenset({"network", "postgresql"})
    seconds = (6.0, 15.0)
    counts = ("reset", "refused", "dropped_bytes")

    @override
    def links(self) -> list[str]:
        holders = self.cluster.postgresql.execute(
            "select distinct s.name from bearlake.lease l join bearlake.server s using (node_id) where not s.has_left"
        )
        names = sorted({row["name"] for row in holders} & set(self.cluster.of_role("kafka", "pulsar", "rest", "grpc")))
        return [f"{self.random.choice(names)}>postgresql"]

    @override
    def begin(self) -> str:
        what = super().begin()
        self.cluster.fleet.wake("member-silent")
        return what

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": self.random.choice(("cut", "drop"))}


class PutOutage(LinkFault):
    """PUTs of some keys fail; in a long run for minutes."""

    name = "put-outage"
    resources = frozenset({"network", "s3"})
    seconds = (10.0, 90.0)
    counts = ("status_503",)

    @override
    def links(self) -> list[str]:
        return self.cluster.network.matching(">s3")

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "status", "status": 503, "by": "path", "fraction": self.random.choice((0.2, 0.5, 0.8))}


class Errors(PutOutage):
    """Some requests of all kinds get 500 or 503."""

    name = "s3-errors"
    seconds = (5.0, 20.0)
    counts = ("status_500", "status_503")

    @override
    def rule(self) -> dict[str, Any]:
        return {
            "mode": "status",
            "status": self.random.choice((500, 503)),
            "by": "request",
            "methods": self.random.choice((("GET",), ("PUT", "GET", "HEAD", "POST", "DELETE"))),
            "fraction": self.random.choice((0.1, 0.4)),
        }


class SlowStorage(LinkFault):
    """The object store answers slowly."""

    name = "slow-s3"
    resources = frozenset({"network", "s3"})
    counts = ("delayed_blocks",)

    @override
    def links(self) -> list[str]:
        return self.cluster.network.matching(">s3")

    @override
    def rule(self) -> dict[str, Any]:
        return {"mode": "delay", "delay_ms": self.random.choice((100, 500, 2000))}


KINDS: tuple[type[Fault], ...] = (Cut, Flap, Drop, Delay, Hold, IsolateHolder, PutOutage, Errors, SlowStorage)
