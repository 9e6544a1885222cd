"""Reloads the TLS files of listeners while the process runs: renewed certificates (cert-manager renews them every 60 days), other client
authorities, newer revocation lists.

A changed file replaces the listener's context, so it applies to every later handshake. Open connections are not affected; those whose
clients log in by certificate end after `authentication.session_ms_max`. Files that do not match each other are not loaded.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from bearlake.errors import Invalid
from bearlake.serving.files import FollowedFiles
from bearlake.serving.listener import BoundSettings, RenewableContext, tls_context, tls_files
from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

LOOK_PAUSE_MS = 10_000
SESSION_MS_MAX = 60_000
"""Age at which a context that verifies clients is replaced. It remembers TLS 1.2 sessions for two hours, even without tickets, and a client
that resumes one is not verified again: its certificate, or the revocation list, may have expired."""


class Certificates:
    """The TLS contexts of all listeners of a process."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._watched: list[_Watched] = []

    def watch(self, settings: BoundSettings, what: str, context: RenewableContext) -> None:
        """Watch the files of a listener; `what` names it in messages."""
        self._watched.append(_Watched(settings, what, context, self._now_s))

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
    def __init__(
        self, settings: BoundSettings, what: str, context: RenewableContext, now_s: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._what = what
        self._context = context
        self._now_s = now_s
        self._loaded_s = now_s()
        self._followed = FollowedFiles(tls_files(settings), pause_ms=0)
        self._load()  # the files may have changed since the context was made

    def renew(self) -> None:
        if self._followed.have_changed() and self._load():
            log.info("using the changed TLS files", extra={"listener": self._what})
        elif self._settings.tls_client_ca_file and self._now_s() - self._loaded_s >= SESSION_MS_MAX / 1000:
            self._load()

    def _load(self) -> bool:
        """Return whether the files can be used."""
        self._loaded_s = self._now_s()
        try:
            context = tls_context(self._settings, self._what)
        except Invalid as error:  # perhaps not all files are replaced yet; the next change is loaded
            log.warning(
                "cannot use the changed TLS files; keeping the former ones",
                extra={"listener": self._what, "error": str(error)},
            )
            return False
        assert context is not None
        self._context.newest = context
        return True
