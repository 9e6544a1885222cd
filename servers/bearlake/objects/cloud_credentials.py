"""S3 keys from a file that may be replaced while the process runs, such as a mounted Secret: the format of `~/.aws/credentials`.

    [default]
    aws_access_key_id = …
    aws_secret_access_key = …
    aws_session_token = …        (for temporary keys)

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
_CLIENT_MARGIN_S = 300  # obstore requests new keys this long before the keys expire


def follow(path: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> "S3CredentialProvider":
    """Return the credential provider for obstore; it reads at most once per `READ_PAUSE_S`. Raises `Invalid` if the file is unusable now.

    Later, the last valid keys are kept while the file cannot be used.
    """
    keys = read_keys(path)

    def provide() -> "S3Credential":
        nonlocal keys
        with suppress(
            Invalid
        ):  # half written or missing for a while: the store decides whether the old keys are still valid
            keys = read_keys(path)
        expires_at = now() + timedelta(seconds=_CLIENT_MARGIN_S + READ_PAUSE_S)
        return {"access_key_id": keys[0], "secret_access_key": keys[1], "token": keys[2], "expires_at": expires_at}

    return provide


def read_keys(path: str) -> tuple[str, str, str | None]:
    """Return access key id, secret access key, session token. Raises `Invalid`, without the file's content."""
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
