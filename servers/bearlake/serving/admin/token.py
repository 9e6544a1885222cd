"""The bearer tokens of the admin API: the admin token, which servers and operator share, and the metrics token. They may change at runtime.

A new token reaches servers and clients at different times (a Secret takes up to about two minutes to reach all pods). So during an
overlap both sides use both tokens: a server accepts the previous token, and a client retries a refused request with the previous token.
"""

import hmac
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bearlake.errors import Invalid
from bearlake.serving.files import FollowedFiles

log = logging.getLogger(__name__)

TOKEN_LENGTH_MIN = 16
TOKEN_FILE = "admin.token_file"  # noqa: S105 - a setting's name


class AdminToken:
    """A token and its predecessor. With a `file`, it follows the file's content."""

    def __init__(
        self,
        token: str,
        file: str = "",
        *,
        overlap_ms: int = 0,
        now_s: Callable[[], float] = time.monotonic,
        setting: str = TOKEN_FILE,
    ) -> None:
        """`token` is the file's current content; `overlap_ms` is how long it is accepted after a new token was found.

        `setting` names the file in messages.
        """
        self._token = token
        self._setting = setting
        self._before = ""
        self._before_end_s = 0.0
        self._file = file
        self._followed = FollowedFiles([file] if file else [], now_s=now_s)
        self._overlap_s = overlap_ms / 1000
        self._now_s = now_s
        if file:
            self._read()  # the file may have changed since the caller read it

    def accepted(self) -> Sequence[str]:
        """Return the tokens that a server accepts and a client tries, the newest first."""
        if self._followed.have_changed():
            self._read()
        is_overlap = self._now_s() < self._before_end_s
        return [self._token, self._before] if is_overlap else [self._token]

    def is_in(self, authorization: str | None) -> bool:
        """Return whether the Authorization header carries an accepted token."""
        return any([has_token(authorization, token) for token in self.accepted()])  # noqa: C419 - compares with all of them

    def _read(self) -> None:
        """Read a new token from the file; if the content is not a valid token, the current token stays in force."""
        try:
            token = read_token_file(self._file, self._setting)
        except Invalid as error:
            log.warning(
                "cannot use a changed token file of the admin API; keeping the current token",
                extra={"error": str(error)},
            )
            return
        if token != self._token:
            self._before, self._token = self._token, token
            self._before_end_s = self._now_s() + self._overlap_s
            log.info(
                "a token of the admin API has changed",
                extra={"setting": self._setting, "overlap_ms": round(self._overlap_s * 1000)},
            )


def read_token_file(path: str, setting: str = TOKEN_FILE) -> str:
    """Return the token in the file of a setting. Raises `Invalid`, without the file's content."""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{setting}: cannot read {path}: {error}") from error
    check_token(token, path)
    return token


def check_token(token: str, source: str) -> None:
    """Raise `Invalid` if the token is too short."""
    if len(token) < TOKEN_LENGTH_MIN:
        raise Invalid(f"the token in {source} is shorter than {TOKEN_LENGTH_MIN} characters")


def has_token(authorization: str | None, token: str) -> bool:
    """Return whether the Authorization header carries `token`, in constant time."""
    scheme, _, given = (authorization or "").partition(" ")
    octets = given.strip().encode(errors="surrogateescape")  # a header may have octets that are not UTF-8
    return scheme.lower() == "bearer" and hmac.compare_digest(octets, token.encode())
