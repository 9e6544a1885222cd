"""How this server verifies the certificates of other servers: by authorities in a file, which may change while it runs."""

import logging
import ssl
import time
from collections.abc import Callable

from bearlake.errors import Invalid
from bearlake.serving.files import FollowedFiles

log = logging.getLogger(__name__)


class PeerTrust:
    """The authorities of the other servers' certificates, and the name that these certificates have."""

    def __init__(
        self, ca_file: str = "", server_name: str = "", *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`ca_file`: authorities in PEM; empty: those that this machine trusts. `server_name` empty: the host that is connected to.

        Raises `Invalid` if the file cannot be used.
        """
        self._ca_file = ca_file
        self._followed = FollowedFiles([ca_file] if ca_file else [], now_s=now_s)
        self._context = _context(ca_file) if ca_file else None
        self.server_name = server_name or None
        """The name that a certificate must have; None: the host that is connected to."""

    def context(self) -> ssl.SSLContext | bool:
        """Return aiohttp's option `ssl` for the next connection: a context, or True for the machine's authorities.

        A changed file makes a new context, so that connections that the former authorities verified are not used again.
        """
        if self._followed.have_changed():
            try:
                self._context = _context(self._ca_file)
            except Invalid as error:  # perhaps it is being replaced; the next change is loaded
                log.warning("cannot use the changed authorities; keeping the former ones", extra={"error": str(error)})
        return True if self._context is None else self._context


def _context(ca_file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"admin.tls_ca_file: cannot use {ca_file}: {error}") from error
    return context
