"""How the operator verifies the certificates of a data layer's servers: by authorities in a file, which the kubelet may replace."""

import ssl
from pathlib import Path

from bearlake_operator.settings import DataLayer

AUTHORITIES = Path("/etc/bearlake/authorities")
"""Where the chart mounts the authorities of each data layer whose admin API has TLS: `<data layer>/ca.crt`."""
FILE = "ca.crt"


class Trust:
    """The authorities of one data layer, and the name that its servers' certificates have."""

    def __init__(self, file: Path | None = None, server_name: str = "") -> None:
        """`file`: authorities in PEM; None: those that the image trusts. `server_name` empty: the host that is connected to."""
        self._file = file
        self._content = ""
        self._context: ssl.SSLContext | None = None
        self.server_name = server_name or None
        """The name that a certificate must have; None: the host that is connected to."""

    def context(self) -> ssl.SSLContext | bool:
        """aiohttp's option `ssl` for the next request: a context of the file's present content, or True for the image's authorities.

        Raises `OSError`: the file cannot be read or used.
        """
        if self._file is None:
            return True
        content = self._file.read_text(encoding="ascii", errors="ignore")  # comments in it may have other letters
        if self._context is None or content != self._content:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            try:
                context.load_verify_locations(cadata=content)
            except (ValueError, ssl.SSLError) as error:
                raise OSError(f"cannot use {self._file}: {error}") from error
            self._content, self._context = content, context
        return self._context


def trust_of(name: str, data_layer: DataLayer, authorities: Path) -> Trust:
    """How the servers of the data layer `name` are verified; `authorities` is a folder with `<data layer>/ca.crt`."""
    tls = data_layer.admin.tls
    return Trust() if tls is None else Trust(authorities / name / FILE, tls.server_name)
