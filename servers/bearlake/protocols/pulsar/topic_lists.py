"""Lists of topics as clients ask for them: the namespace they name, and the hash by which both sides compare lists."""

from collections.abc import Iterable

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.errors import Refused


def namespace(name: str) -> str:
    """A namespace as a client names it. Raises `Refused`."""
    try:
        return names.check_namespace(name)
    except Invalid as error:
        raise Refused("NotAllowedError", str(error)) from error


def hash_of(topics: Iterable[str]) -> str:
    """CRC32C of the sorted names between commas, low byte first, in hexadecimal.

    Source: Pulsar, `TopicList.calculateHash` (PIP-145).
    """
    return kernel.crc32c(",".join(sorted(topics)).encode()).to_bytes(4, "little").hex()
