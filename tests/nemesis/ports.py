"""TCP ports for servers that keep their address for a whole run.

A port of the kernel's ephemeral range may be the local port of any outgoing connection, on any loopback address, at any time: a server that
is to listen there fails to start. The ports here are outside that range, so only a program that asks for the same number can take them.
"""

import errno
import random
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
"""Lower ports are often those of installed services."""
HIGHEST = 65_535
ATTEMPTS_MAX = 1_000


class NoPort(RuntimeError):
    """No port outside the ephemeral range is free."""


def candidates(ephemeral: tuple[int, int]) -> Sequence[int]:
    """Return all ports from `LOWEST` on outside the inclusive range `ephemeral`."""
    low, high = ephemeral
    return [*range(LOWEST, low), *range(max(LOWEST, high + 1), HIGHEST + 1)]


def drawn() -> Iterable[int]:
    """Return some candidates of this machine, in random order: concurrent runs rarely try the same port."""
    low, high = map(int, EPHEMERAL_RANGE.read_text().split())
    found = candidates((low, high))
    return random.sample(found, min(len(found), ATTEMPTS_MAX))


def choose(tried: Iterable[int], hosts: Sequence[str]) -> int:
    """Return the first of these ports that is free on all hosts. Raises `NoPort`."""
    for port in tried:
        if all(is_free(host, port) for host in hosts):
            return port
    raise NoPort(f"no port outside the ephemeral range ({EPHEMERAL_RANGE}) is free on {', '.join(hosts)}")


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True
