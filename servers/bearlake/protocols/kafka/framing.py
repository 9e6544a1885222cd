"""The size limits of requests: only Produce may exceed `control_request_bytes_max`, so the limit depends on the API key."""

from bearlake.errors import Corrupt
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.settings import KafkaSettings

PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")
"""The first two bytes of a Produce request."""


def may_be_large(size: int, begun: memoryview, limits: KafkaSettings) -> bool:
    """Whether a request of unusual `size` (bytes) is allowed; `begun` is the part that has arrived. False while that is unknown.

    Raises:
        Corrupt: the size is not allowed.
    """
    if not 8 <= size <= limits.request_bytes_max:
        raise Corrupt(f"a request of {size} bytes: expected 8 to {limits.request_bytes_max}")
    if len(begun) < 2:
        return False
    if begun[:2] != PRODUCE:
        raise Corrupt(
            f"a request of {size} bytes: expected at most {limits.control_request_bytes_max}, except for Produce"
        )
    return True
