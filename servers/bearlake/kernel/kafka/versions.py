"""The versions of Produce that are spoken, and what each has brought.

Source: Apache Kafka, ProduceRequest.json and ProduceResponse.json.
"""

from bearlake.errors import Unsupported

LOG_START_OFFSET = 5
"""The response says where the log starts."""
ZSTD = 7
"""Batches may be compressed with zstd (KIP-110)."""
RECORD_ERRORS = 8
"""The response has errors of single records (KIP-467)."""
FLEXIBLE = 9
"""Lengths are varints, and structures end in tagged fields (KIP-482)."""
TOPIC_IDS = 13
"""Topics are named by their ids (KIP-516)."""


def check_version(version: int) -> None:
    """Raise `Unsupported` unless the version is one of 3-13."""
    if not 3 <= version <= 13:
        raise Unsupported(f"Produce version {version}; versions 3-13 are spoken")
