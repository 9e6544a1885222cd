"""How large a request may be: only Produce may exceed `control_request_bytes_max`, so that its first bytes decide."""

from bearlake.errors import Corrupt
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.settings import KafkaSettings

PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")
"""What a Produce request begins with."""


def may_be_large(size: int, begun: memoryview, limits: KafkaSettings) -> bool:
    """Whether a request of `size` bytes, of which `begun` has arrived, may have this unusual size; False while that is not known.

    Raises:
        Corrupt: it may not.
    """
    if not 8 <= size <= limits.request_bytes_max:
        raise Corrupt(f"a request of {size} bytes: expected 8 to {limits.request_bytes_max}")
    if len(begun) < 2:
        return False
    if begun[:2] != PRODUCE:
        raise Corrupt(
            f"a request of {size} bytes: expected {limits.control_request_bytes_max} at most, except for Produce"
        )
    return True
