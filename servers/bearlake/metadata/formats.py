"""Which formats of data files a process reads: a part of the version that it registers with, so that others need not guess.

    0.1.0              1: every row has its value
    0.1.0+format.2     2: a file may leave out values that its columns give back (decision 213)
    0.1.0+format.3     3: also values of Protobuf schemas (decision 212)
    0.1.0+format.4     4: a file may have columns of keys, and leave out keys (decision 248)

A process that writes a format asks first whether all live processes read it. A process that is too old for a store does not start, because
it does not know the store's layout. So only those are left that run during an upgrade. Source: decision 241.
"""

import re
from collections.abc import Iterable

from bearlake.metadata.model import Server

FORMAT = 4
"""The newest format that this program reads."""
ELIDED_VALUES = 2
"""The first format whose files may leave values out."""
ELIDED_MESSAGES = 3
"""The first format whose files may leave values of Protobuf schemas out."""
TYPED_KEYS = 4
"""The first format whose files may have columns of keys."""
_SUFFIX = re.compile(r"\+format\.(\d{1,9})\Z")


def registered_version(program_version: str) -> str:
    """Return the version with which a process of this program registers."""
    return f"{program_version}+format.{FORMAT}"


def format_of(version: str) -> int:
    """Return the newest format that a registered process reads."""
    found = _SUFFIX.search(version)
    return 1 if found is None else int(found[1])


def too_old(servers: Iterable[Server], format_: int) -> list[Server]:
    """Return the processes that do not read a format, by name."""
    return sorted((server for server in servers if format_of(server.version) < format_), key=lambda server: server.name)
