"""Addresses of clients, with their open connections, so that one address cannot take all connections of a server; URLs of servers."""

from collections import Counter


class AddressCounts:
    """Counts the connections of each address up to a maximum."""

    def __init__(self, count_max: int) -> None:
        """`count_max`: most connections of one address; 0: no limit."""
        self._count_max = count_max
        self._counts: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a connection of `address`; returns False, without counting it, if the address has too many."""
        if self._count_max and self._counts[address] >= self._count_max:
            return False
        self._counts[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection of `address` as closed."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


def address_of(peername: object) -> str:
    """Return the address in a socket's peer name; the empty string if it has none (a Unix socket)."""
    return str(peername[0]) if isinstance(peername, tuple) else ""


def url_of(endpoint: str) -> str:
    """Return the URL of a server's HTTP endpoint. One that has TLS names its scheme; any other is a bare `host:port`."""
    return endpoint if "://" in endpoint else f"http://{endpoint}"
