"""Chooses the partition of a record from its key, as Kafka's clients do, so that all protocols agree.

Source: Apache Kafka, `org.apache.kafka.common.utils.Utils.murmur2` and the default partitioner; the hash is Austin Appleby's MurmurHash2.
"""

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition index for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(key: bytes) -> int:
    """MurmurHash2 with Kafka's seed, unsigned 32 bits."""
    length = len(key)
    h = _SEED ^ length
    end = length & ~3
    for at in range(0, end, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length > end:
        h = (h ^ int.from_bytes(key[end:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
