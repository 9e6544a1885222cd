"""The supported versions of Produce, and what each version added.

Source: Apache Kafka, ProduceRequest.json and ProduceResponse.json.
"""

from bearlake.errors import Unsupported

LOG_START_OFFSET = 5
"""The response has the log start offset."""
ZSTD = 7
"""Batches may be compressed with zstd (KIP-110)."""
RECORD_ERRORS = 8
"""The response has errors per record (KIP-467)."""
FLEXIBLE = 9
"""Lengths are varints, and structures end with tagged fields (KIP-482)."""
TOPIC_IDS = 13
"""Topic ids replace topic names (KIP-516)."""


def check_version(version: int) -> None:
    """Raise `Unsupported` unless the version is in 3-13."""
    if not 3 <= version <= 13:
        raise Unsupported(f"Produce version {version}; supported: 3-13")
