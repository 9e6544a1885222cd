"""S3 keys from a file that may be replaced while we run, such as a mounted Secret: the format of `~/.aws/credentials`.

    [default]
    aws_access_key_id = …
    aws_secret_access_key = …
    aws_session_token = …        (for temporary ones)

Source: AWS SDKs and Tools Reference Guide, "Shared config and credentials files".
"""

import configparser
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bearlake.errors import Invalid

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3CredentialProvider

PROFILE = "default"
READ_PAUSE_S = 60
_CLIENT_MARGIN_S = 300  # obstore asks again this long before the keys expire


def follow(path: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> "S3CredentialProvider":
    """What obstore asks for keys; it does so at most once per `READ_PAUSE_S`. Raises `Invalid` when the file is no such file now.

    Later on, keys that were good once are kept while the file cannot be used.
    """
    keys = _read(path)

    def provide() -> "S3Credential":
        nonlocal keys
        with suppress(Invalid):  # half written or gone for a while: the store says whether the old ones will do
            keys = _read(path)
        expires_at = now() + timedelta(seconds=_CLIENT_MARGIN_S + READ_PAUSE_S)
        return {"access_key_id": keys[0], "secret_access_key": keys[1], "token": keys[2], "expires_at": expires_at}

    return provide


def _read(path: str) -> tuple[str, str, str | None]:
    """Access key id, secret access key, session token. Raises `Invalid`, without what is in the file."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8"))
        section = parser[PROFILE]
        return section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token") or None
    except OSError as error:
        raise Invalid(f"object_store.cloud.credentials_file: cannot read {path}: {error.strerror}") from error
    except (configparser.Error, KeyError, UnicodeDecodeError):
        raise Invalid(
            f"object_store.cloud.credentials_file: {path} needs [{PROFILE}] with aws_access_key_id and aws_secret_access_key"
        ) from None
