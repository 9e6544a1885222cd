"""Where another cluster may send an import: not to this machine, and not to link-local addresses.

A cluster names its brokers, and its HTTP API redirects requests. So whoever controls a source could let an import, which often runs next
to servers that trust their own machine, call those servers or the metadata service of a cloud (169.254.169.254; some clouds have it at
addresses that are not link-local, `CLOUDS`, which count as such here). Addresses that the user names are used as they are, unless a name
server changes its mind: a name that led elsewhere cannot lead here later (DNS rebinding). What a source names is refused if it is link-
local; also if it is a loopback address, unless the address that the user has named is one, too. The peer of the connection is checked
before anything of the protocol is sent, so no answer of a name server matters in between.

    Reach        the addresses of one source, for as long as it is used
    Redirects    the connections of one request: the first is to an address of the user, later ones are to addresses of the source

Source: RFC 3927, RFC 4291 (link-local and loopback addresses); RFC 6052, RFC 8215 (IPv4 addresses behind NAT64); documentation of the
clouds.
"""

from asyncio import StreamWriter
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.request import Request

from bearlake.errors import Denied, Unavailable

CLOUDS = tuple(
    map(
        ip_network,
        (
            "100.100.100.200/32",  # Alibaba Cloud
            "168.63.129.16/32",  # Azure: WireServer
            "192.0.0.192/32",  # Oracle Cloud Classic
            "fd00:42::42/128",  # Scaleway
            "fd00:c1::a9fe:a9fe/128",  # Oracle Cloud
            "fd00:ec2::/32",  # AWS: metadata, credentials of pods, and others
            "fd20:ce::254/128",  # Google Cloud
        ),
    )
)
"""Services that clouds offer to each of their machines, at addresses that are not link-local."""

_NAT64 = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48")))
"""The last 32 bits are an IPv4 address: in the second network, if its prefix is one of 96 bits."""


class Reach:
    """Checks the connections to one source."""

    def __init__(self, name: str) -> None:
        """`name`: what messages call the source."""
        self._name = name
        self._seen: dict[str, bool] = {}
        """Whether each address of the user is on this machine or its link, as its first connection has shown."""
        self._is_here = False
        """Whether an address of the user is a loopback address."""

    def named_by_user(self, peer: str, address: str = "") -> None:
        """Check the IP address to which an `address` of the user leads. Raises `Denied`: it led to another machine before."""
        found = _address(peer)
        is_near = found.is_loopback or _is_on_link(found)
        was_near = self._seen.setdefault(address, is_near)
        if is_near and not was_near:
            raise Denied(f"the address of {self._name} led to another machine, and leads to {peer} now")
        self._is_here = self._is_here or found.is_loopback

    def check(self, peer: str) -> None:
        """Check the IP address to which an address of the source leads. Raises `Denied`."""
        address = _address(peer)
        if _is_on_link(address) or (address.is_loopback and not self._is_here):
            raise Denied(
                f"{self._name} names {peer}, which belongs to this machine, its link, or its cloud's metadata service: "
                "a source cannot mean it"
            )


class Redirects:
    """Checks the connections of one HTTP request."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._is_first = True

    def of(self, request: Request) -> Request:
        """Return the request, whose connection will be checked (`http_connections.py`)."""
        request.reach = self  # type: ignore[attr-defined]
        return request

    def check_next(self, peer: str) -> None:
        """The first call is for an address of the user, later ones for addresses of the source. Raises `Denied`."""
        if self._is_first:
            self._reach.named_by_user(peer)
            self._is_first = False
        else:
            self._reach.check(peer)


def peer_of(writer: StreamWriter) -> str:
    """Return the IP address of the other end. Raises `Unavailable`: it has closed the connection already."""
    peer = writer.get_extra_info("peername")
    if not peer:
        raise Unavailable("the connection was closed as soon as it was open")
    return str(peer[0])


def _address(peer: str) -> IPv4Address | IPv6Address:
    address = ip_address(peer.partition("%")[0])
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return getattr(address, "ipv4_mapped", None) or address


def _is_on_link(address: IPv4Address | IPv6Address) -> bool:
    return address.is_link_local or any(address in network for network in CLOUDS)
