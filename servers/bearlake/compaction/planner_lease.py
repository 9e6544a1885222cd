"""The name of the planner's lease."""

import hashlib
from collections.abc import Sequence

LEASE = "compaction/planner"
"""Lease of the planner of all streams; a planner of some streams appends a digest of their patterns."""


def lease_name(streams: Sequence[str]) -> str:
    """Return the planner's lease name for these stream patterns, independent of their order."""
    if not streams:
        return LEASE
    return f"{LEASE}/{hashlib.sha256(' '.join(sorted(set(streams))).encode()).hexdigest()[:16]}"
