"""Reloads TLS certificates that are renewed while the process runs (cert-manager renews them every 60 days).

Changed files are loaded into the listener's current context, so they apply to every later handshake; open connections are not affected.
Files that do not match each other are not loaded. A client authority that is removed from its file stays trusted until a restart.
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
        self._watched: list[_Watched] = []

    def watch(self, settings: ListenerSettings, what: str, context: ssl.SSLContext) -> None:
        """Watch the files of a listener; `what` names it in messages."""
        self._watched.append(_Watched(settings, what, context))

    async def run(self) -> None:
        """Check periodically; ends only by cancellation."""
        while True:
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
            self.renew()

    def renew(self) -> None:
        """Load files that have changed since the last check."""
        for watched in self._watched:
            watched.renew()


class _Watched:
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
            )  # tried on an unused context first: a wrong key would spoil the current context
            self._context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
            if settings.tls_client_ca_file:
                self._context.load_verify_locations(settings.tls_client_ca_file)
        except (
            Invalid,
            OSError,
        ) as error:  # also ssl.SSLError; if a file was replaced in between, the next check loads it
            log.warning(
                "cannot use the renewed certificate; keeping the current one",
                extra={"listener": self._what, "error": str(error)},
            )
            return
        log.info("using the renewed certificate", extra={"listener": self._what})
