"""The format of keys; one rule for all stores.

A key is `/`-separated parts of ASCII letters, digits and `_ = . -`; no part is empty or begins with a dot. So it is a
relative path on every file system, needs no quoting in a URL, cannot leave its folder (`..`), and never collides with the
temporary names of the local store (`.tmp-…`). S3 allows 1024 bytes per key, file systems 255 per part. The store's prefix
needs room too, so the limit is 900.
"""

import re

from bearlake.errors import Invalid

KEY_BYTES_MAX = 900
PART_BYTES_MAX = 255

_PART = rf"[A-Za-z0-9_=-][A-Za-z0-9_=.-]{{0,{PART_BYTES_MAX - 1}}}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?")


def check_key(key: str) -> None:
    """Raise `Invalid` unless `key` is a legal key."""
    if len(key) > KEY_BYTES_MAX or _KEY.fullmatch(key) is None:
        raise Invalid(
            f"object key {key[:KEY_BYTES_MAX]!r}: expected /-separated parts of ASCII letters, digits, '_', '=', '.', '-', "
            f"none empty, beginning with a dot or over {PART_BYTES_MAX} characters, {KEY_BYTES_MAX} in total"
        )


def check_prefix(prefix: str) -> None:
    """Raise `Invalid` unless a legal key could begin with `prefix`; the empty prefix is legal."""
    if len(prefix) > KEY_BYTES_MAX or _PREFIX.fullmatch(prefix) is None:
        raise Invalid(f"object key prefix {prefix[:KEY_BYTES_MAX]!r}: not a prefix of a valid key")
