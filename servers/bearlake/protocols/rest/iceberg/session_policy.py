"""What the keys of a client may do in the object store: its table's folder, and nothing else. Pure.

Source: AWS IAM User Guide, "IAM JSON policy elements"; "Policy variables" (`${*}` for a literal asterisk).
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from bearlake.metadata.model import Stream

_TAIL: Final = "tail/*/{}/"
"""Keys of the pieces of a stream's live views: any hour, then the stream (`live/settings.py`, `TAIL_PREFIX`)."""
_OWN_FILES: Final = ("data/00000000????????-*", "metadata/*.metadata.json")
"""Files of a stream's table that only the servers write: data files by their task's number, and the table's versions."""
_READ: Final = ["s3:GetObject", "s3:GetObjectVersion"]
_WRITE: Final = ["s3:PutObject", "s3:AbortMultipartUpload"]
_DELETE: Final = "s3:DeleteObject"
_LENGTH_MAX: Final = 2_048
"""Characters of a session policy in STS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a client gets: the bucket, and the key of the table's folder without a slash at the end.

    `stream`: whose table it is; None: no stream's. `has_tail`: also the pieces of the stream's live views, under `base` (a key prefix).
    """

    bucket: str
    base: str
    folder: str
    stream: Stream | None
    has_tail: bool
    may_write: bool


def place_of(location: str, bucket: str, base: str) -> str | None:
    """Return the key of a table's folder at a location (`s3://bucket/key`); None: it is not in the object store `bucket`, `base`."""
    found = re.fullmatch(r"s3[an]?://([^/]+)/(.+?)/*", location)
    if found is None or found[1] != bucket or not found[2].startswith(base):
        return None
    return found[2]


def session_policy(grant: Grant, partition: str = "aws") -> str | None:
    """Return the policy as JSON; None: its names are too long for STS."""
    bucket = f"arn:{partition}:s3:::{grant.bucket}"
    folder = _literal(grant.folder) + "/"
    tail = [_literal(grant.base) + _TAIL.format(grant.stream.id.hex)] if grant.has_tail and grant.stream else []
    prefixes = [folder, *tail]
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": _READ, "Resource": [f"{bucket}/{prefix}*" for prefix in prefixes]},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
        },
    ]
    if grant.may_write:
        allowed = _WRITE if grant.stream is not None else [*_WRITE, _DELETE]
        statements.append({"Effect": "Allow", "Action": allowed, "Resource": f"{bucket}/{folder}*"})
    if grant.may_write and grant.stream is not None:
        own = [f"{bucket}/{folder}{name}" for name in _OWN_FILES]
        statements.append({"Effect": "Deny", "Action": "s3:PutObject", "Resource": own})
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    return text if len(text) <= _LENGTH_MAX else None


def _literal(key: str) -> str:
    return re.sub(r"[$*?]", lambda found: f"${{{found[0]}}}", key)
