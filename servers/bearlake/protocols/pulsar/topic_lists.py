"""Topic lists: parses the namespace of a request, and computes the hash with which client and server compare lists."""

from collections.abc import Iterable

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.errors import Refused


def namespace(name: str) -> str:
    """Parse a namespace from a request. Raises `Refused`."""
    try:
        return names.check_namespace(name)
    except Invalid as error:
        raise Refused("NotAllowedError", str(error)) from error


def hash_of(topics: Iterable[str]) -> str:
    """CRC32C of the sorted, comma-separated names: hexadecimal, low byte first.

    Source: Pulsar, `TopicList.calculateHash` (PIP-145).
    """
    return kernel.crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()
