"""Certificates of listeners that are renewed while the process runs, as cert-manager does every 60 days.

What changes in the files is taken into the listener's present context, so it counts for every later handshake; connections stay as they
are. Files that do not fit together are not taken. An authority of clients that is taken out of its file is trusted until a restart.
"""

import asyncio
import logging
import ssl

from bearlake.errors import Invalid
from bearlake.serving.files import FollowedFiles
from bearlake.serving.listener import ListenerSettings, tls_context, tls_files

log = logging.getLogger(__name__)

LOOK_PAUSE_MS = 10_000


class Certificates:
    """The contexts of all listeners of a process."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def keep(self, settings: ListenerSettings, what: str, context: ssl.SSLContext) -> None:
        """Follow the files of a listener; `what` names it in messages."""
        self._kept.append(_Kept(settings, what, context))

    async def run(self) -> None:
        """Look from time to time; ends only by cancellation."""
        while True:
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
            self.renew()

    def renew(self) -> None:
        """Take what has changed since the last time."""
        for kept in self._kept:
            kept.renew()


class _Kept:
    def __init__(self, settings: ListenerSettings, what: str, context: ssl.SSLContext) -> None:
        self._settings = settings
        self._what = what
        self._context = context
        self._followed = FollowedFiles(tls_files(settings), pause_ms=0)

    def renew(self) -> None:
        if not self._followed.have_changed():
            return
        settings = self._settings
        try:
            tls_context(
                settings, self._what
            )  # tried on a context that nobody uses: a wrong key would spoil the present one
            self._context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
            if settings.tls_client_ca_file:
                self._context.load_verify_locations(settings.tls_client_ca_file)
        except (
            Invalid,
            OSError,
        ) as error:  # also ssl.SSLError; replaced once more between the two: the next look takes it
            log.warning("a renewed certificate cannot be used", extra={"listener": self._what, "error": str(error)})
            return
        log.info("a renewed certificate is in use", extra={"listener": self._what})
