"""The audit log: one line for each denial, refused login and administrative change, over all protocols.

    who        the principal, such as User:alice
    address    its IP address; empty if it is unknown
    listener   the listener that it used, such as kafka or rest; empty inside the server
    operation  what it asked for, in the words of access rules
    resource   of what, such as Topic:orders
    outcome    denied · done · failed · unknown (a store did not answer: the change may or may not have happened)
    reason     why it was denied or failed; empty if it was done
    detail     what was changed, without values that may be secret; left out if there is nothing to say

Lines are written by the logger `bearlake.audit`: denials and failures as WARNING, changes as INFO. Denials and failed changes, which any
client can cause, are limited in number; each line says how many lines were left out since the line before. The clients of one network
(/24, IPv6: /48) get no more lines of a window than they leave to others. The first line after a window follows lines that name the clients
that got none, with the number of their lines. So nobody can hide the denials of others. Changes that were made are always logged. A line
never has passwords, tokens, keys or contents of records and schemas.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_network

from bearlake.errors import BearlakeError, Conflict, Denied, Unavailable
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import INTERNAL, Operation, Principal, Resource
from bearlake.telemetry import metrics

log = logging.getLogger("bearlake.audit")

AuditedChange = AbstractContextManager[list[str]]
"""Notes the change that a block makes, with the details in the list."""

OTHERS = ("", "")
"""Clients without a line that are not named, because there were too many of them."""

TEXT_LENGTH_MAX = 300
"""Longest name in a line; longer names are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """How many denials and failed changes are logged. Changes that were made are always logged."""

    window_ms: int = 60_000
    """Length (ms) of the windows in which lines are counted."""
    client_line_count_max: int = 20
    """Denials and failures of one client (principal and address) that are logged in a window."""
    line_count_max: int = 1_000
    """Denials and failures of all clients of this server that are logged in a window. One network gets no more of them than it leaves to
    others."""
    silenced_count_max: int = 100
    """Clients (principal and network) without a line in a window that are named, with the number of their lines, when it is over. The
    lines of further clients are counted together."""

    def __post_init__(self) -> None:
        if min(self.window_ms, self.client_line_count_max, self.line_count_max, self.silenced_count_max) < 1:
            raise ValueError(
                "window_ms, client_line_count_max, line_count_max and silenced_count_max must be at least 1"
            )


class Audit:
    """The audit log of one process. Use it from the event loop's thread only."""

    def __init__(self, settings: AuditSettings | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds, and never goes back."""
        self._settings = settings or AuditSettings()
        self._clock = clock
        self._window = clock()
        self._line_count = 0
        self._counts: dict[tuple[str, str], int] = {}
        """Lines in this window by client; at most `line_count_max` clients."""
        self._networks: dict[str, int] = {}
        """Lines in this window by network; at most `line_count_max` networks."""
        self._silenced: dict[tuple[str, str], int] = {}
        """Lines that were left out in this window, by principals and networks that had none; at most `silenced_count_max`, and `OTHERS`."""
        self._suppressed_count = 0

    def denied(self, who: Principal, operation: Operation, kind: Resource, name: str) -> None:
        """Note that a caller may not do `operation` to a resource that it named."""
        metrics.AUDIT_DENIALS.labels(operation.value, kind.value).inc()
        self._limited(who, operation.value, f"{kind.value}:{name}", "denied", "access rules", "")

    def login_refused(self, mechanism: str, user: str, address: str, listener: str, reason: str) -> None:
        """Note a refused login; `user` is the name that the client gave (empty: none), which nothing proves."""
        who = Principal("User", user, host=address, listener=listener)
        self._limited(who, "Login", mechanism, "denied", reason, "", client=("", address))

    @contextmanager
    def change(
        self, who: Principal, operation: Operation, kind: str, name: str = "", *details: str
    ) -> Iterator[list[str]]:
        """Note the change that the block makes, with its outcome. Changes of the server itself (`INTERNAL`) are not noted.

        `kind`: a kind of access rules' resources, or User, AccessRule, Quota, Subscription. Check the caller's rights before. The block may
        change the list of details; each of them has a line of its own if the change was made.
        """
        noted = [*details]
        if who is INTERNAL:
            yield noted
            return
        what = operation.value, f"{kind}:{name}" if name else kind
        try:
            yield noted
        except (Conflict, Denied):  # nothing was changed: the caller decides again, or the denial is noted already
            raise
        except Unavailable as error:
            self._line(who, *what, "unknown", _reason(error), "; ".join(noted))
            raise
        except (BearlakeError, GroupRefusal) as error:
            self._limited(who, *what, "failed", _reason(error), "; ".join(noted))
            raise
        except asyncio.CancelledError:
            self._line(who, *what, "unknown", "the request was cancelled", "; ".join(noted))
            raise
        for detail in noted or ("",):
            self._line(who, *what, "done", "", detail)

    def _limited(
        self,
        who: Principal,
        operation: str,
        resource: str,
        outcome: str,
        reason: str,
        detail: str,
        client: tuple[str, str] | None = None,
    ) -> None:
        """Write a line, unless there were too many of the client (None: the principal at its address)."""
        self._turn()
        client = client or (str(who), who.host)
        network = _network(who.host)
        count, of_network = self._counts.get(client, 0), self._networks.get(network, 0)
        left = self._settings.line_count_max - self._line_count
        if count >= self._settings.client_line_count_max or of_network >= left:
            self._suppressed_count += 1
            metrics.AUDIT_SUPPRESSED.inc()
            if not count:
                self._silence(client[0], network)
            return
        self._line_count += 1
        self._counts[client] = count + 1
        self._networks[network] = of_network + 1
        self._line(who, operation, resource, outcome, reason, detail)

    def _silence(self, name: str, network: str) -> None:
        """Count a line of a client that has none in this window."""
        client = name, network
        if client not in self._silenced and len(self._silenced) >= self._settings.silenced_count_max:
            client = OTHERS
        self._silenced[client] = self._silenced.get(client, 0) + 1

    def _turn(self) -> None:
        """Begin a new window if this one is over, and name the clients that had no line in it."""
        now = self._clock()
        if (now - self._window) * 1000 < self._settings.window_ms:
            return
        silenced = self._silenced
        self._window, self._line_count, self._silenced = now, 0, {}
        self._counts.clear()
        self._networks.clear()
        for (name, network), count in silenced.items():
            log.warning(
                "lines left out",
                extra={"who": _shown(name), "address": network, "outcome": "left out", "suppressed_count": count},
            )

    def _line(self, who: Principal, operation: str, resource: str, outcome: str, reason: str, detail: str) -> None:
        self._turn()
        fields: dict[str, object] = {
            "who": _shown(str(who)),
            "address": who.host,
            "listener": who.listener,
            "operation": operation,
            "resource": _shown(resource),
            "outcome": outcome,
            "reason": _shown(reason),
        }
        if detail:
            fields["detail"] = _shown(detail)
        if self._suppressed_count:
            fields["suppressed_count"], self._suppressed_count = self._suppressed_count, 0
        is_done = outcome == "done"
        log.log(
            logging.INFO if is_done else logging.WARNING, "denial" if outcome == "denied" else "change", extra=fields
        )


def _network(address: str) -> str:
    """Return the network of an IP address: one client may have all its addresses. IPv6 sites get up to a /48 (RFC 6177)."""
    try:
        bits = 48 if ":" in address else 24
        return str(ip_network(f"{address.partition('%')[0]}/{bits}", strict=False))
    except ValueError:
        return address


def _reason(error: BearlakeError | GroupRefusal) -> str:
    return f"{type(error).__name__}: {error}"


def _shown(text: str) -> str:
    """Cut a text that a client may have chosen, and escape what could look like another line."""
    cut = text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
