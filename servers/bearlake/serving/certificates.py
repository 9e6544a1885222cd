"""Reloads the TLS files of listeners while the process runs: renewed certificates (cert-manager renews them every 60 days), other client
authorities, newer revocation lists.

A changed file replaces the listener's context, so it applies to every later handshake. Open connections are not affected; those whose
clients log in by certificate end after `authentication.session_ms_max`. Files that do not match each other are not loaded.
"""

import asyncio
import logging

from bearlake.errors import Invalid
from bearlake.serving.files import FollowedFiles
from bearlake.serving.listener import BoundSettings, RenewableContext, tls_context, tls_files
from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

LOOK_PAUSE_MS = 10_000


class Certificates:
    """The TLS contexts of all listeners of a process."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []

    def watch(self, settings: BoundSettings, what: str, context: RenewableContext) -> None:
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
            contained(log, "renew a certificate", watched.renew)


class _Watched:
    def __init__(self, settings: BoundSettings, what: str, context: RenewableContext) -> None:
        self._settings = settings
        self._what = what
        self._context = context
        self._followed = FollowedFiles(tls_files(settings), pause_ms=0)

    def renew(self) -> None:
        if not self._followed.have_changed():
            return
        try:
            context = tls_context(self._settings, self._what)
        except Invalid as error:  # perhaps not all files are replaced yet; the next change is loaded
            log.warning(
                "cannot use the changed TLS files; keeping the former ones",
                extra={"listener": self._what, "error": str(error)},
            )
            return
        assert context is not None
        self._context.newest = context
        log.info("using the changed TLS files", extra={"listener": self._what})
