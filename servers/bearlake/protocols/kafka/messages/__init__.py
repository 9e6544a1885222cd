"""The messages of Kafka's protocol (`ProduceRequest`, `FetchResponse`, …), generated from the schema files in this folder.

Structs are attributes of their message: `FetchResponse.Partition`. Constructors take keyword arguments, all with defaults.
`__init__.pyi` lists all classes for readers and type checkers; `python -m bearlake.protocols.kafka.codec.stubs` writes it.
"""

import re

from bearlake.protocols.kafka.codec.classes import Message, message_class
from bearlake.protocols.kafka.codec.keys import ApiKey


def __getattr__(name: str) -> type[Message]:
    found = re.fullmatch(r"(\w+)(Request|Response)", name)
    api = re.sub(r"(?<!^)(?=[A-Z])", "_", found[1]).upper() if found else ""
    if not found or api not in ApiKey.__members__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, message_class(ApiKey[api], found[2].lower()))
