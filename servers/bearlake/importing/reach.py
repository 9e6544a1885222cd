"""Where another cluster may send an import: not to this machine, and not to link-local addresses.

A cluster names its brokers, and its HTTP API redirects requests. So whoever controls a source could let an import, which often runs next to
servers that trust their own machine, call those servers or the metadata service of a cloud (169.254.169.254). Addresses that the user names
are used as they are. What a source names is refused if it is link-local; also if it is a loopback address, unless the address that the user
has named is one, too. The peer of the connection is checked before anything of the protocol is sent, so no answer of a name server matters.

Source: RFC 3927, RFC 4291 (link-local and loopback addresses).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.request import Request

from bearlake.errors import Denied


class Reach:
    """Checks the connections that belong together: first those to an address of the user, then those to addresses of the source."""

    def __init__(self, name: str) -> None:
        """`name`: what messages call the source."""
        self._name = name
        self._is_here: bool | None = None
        """Whether the user's address is on this machine; None: not known yet."""

    def of(self, request: Request) -> Request:
        """Return the request, whose connection will be checked (`http_connections.py`)."""
        request.reach = self  # type: ignore[attr-defined]
        return request

    def named_by_user(self, peer: str) -> None:
        """Note where an address of the user leads."""
        self._is_here = _address(peer).is_loopback

    def check(self, peer: str) -> None:
        """Check the IP address to which an address of the source leads. Raises `Denied`."""
        address = _address(peer)
        if address.is_link_local or (address.is_loopback and not self._is_here):
            raise Denied(
                f"{self._name} names {peer}, which belongs to this machine or its link: a source cannot mean it"
            )

    def check_next(self, peer: str) -> None:
        """The first call is for an address of the user, later ones for addresses of the source. Raises `Denied`."""
        if self._is_here is None:
            self.named_by_user(peer)
        else:
            self.check(peer)


def _address(peer: str) -> IPv4Address | IPv6Address:
    address = ip_address(peer.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address
