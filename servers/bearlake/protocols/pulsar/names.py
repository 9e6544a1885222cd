"""Names of topics and streams: a one-to-one mapping without a table.

A topic of tenant `public`, namespace `default` is a stream of the same name. Every other topic maps as

    persistent://acme/prod/orders   ↔   acme..prod..orders

Stream names (Kafka's topic names) contain only letters, digits, `.`, `_` and `-`, so `..` separates the three parts. Inside a part, every
other byte of the UTF-8 text is escaped as `...` and two hexadecimal digits; so is a dot unless it is between two letters, digits, `_` or
`-`. A topic of public/default that needs an escape is written with all three parts. A stream whose name contains `..` in any other form
(Kafka clients can create one) has no name in Pulsar.

A topic `t-partition-N` is partition N of stream `t` if `t` is partitioned and has that partition (`topics.py`).

Source: Pulsar, `TopicName`, `NamespaceName` (tenant/namespace; as Pulsar 4, this server rejects the names of Pulsar 1, with a cluster).
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from bearlake.errors import Invalid
from bearlake.streams.catalog import NAME_PATTERN

PUBLIC_DEFAULT = "public/default"
_PERSISTENT = "persistent"
_SEPARATOR = ".."
_PUBLIC_DEFAULT_PREFIX = "public..default.."
"""How the streams of `PUBLIC_DEFAULT` begin whose names need an escape."""
_PART = re.compile(r"[A-Za-z0-9_=:%.\-]+\Z")  # a tenant or namespace; source: Pulsar, NamedEntity
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)\Z", re.DOTALL)
_TOKEN = re.compile(r"(?P<separator>\.\.)(?=\.{3}[0-9a-f]|[^.])|\.{3}(?P<escape>[0-9a-f]{2})|(?P<plain>[A-Za-z0-9_.-])")
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_DOT = ord(".")
_ESCAPE = "..."
_UNESCAPED = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")  # a part that needs no escape


class TopicName(NamedTuple):
    """The name of a topic, `persistent://namespace/local`, where `namespace` is `tenant/namespace`."""

    namespace: str
    local: str

    def __str__(self) -> str:
        """The full name."""
        return f"{_PERSISTENT}://{self.namespace}/{self.local}"

    @property
    def stream(self) -> str:
        """The name of the topic's stream. Raises `Invalid` if it is too long."""
        parts = (*self.namespace.split("/"), self.local)
        if self.namespace == PUBLIC_DEFAULT and _escape(self.local) == self.local:
            name = self.local
        else:
            name = _SEPARATOR.join(map(_escape, parts))
        if NAME_PATTERN.match(name) is None:
            raise Invalid(f"topic {self}: the name of its stream has {len(name)} characters, the limit is 249")
        return name

    def split_partition(self) -> "tuple[TopicName, int] | None":
        """The partitioned topic and the partition that this name may mean; None without a `-partition-N` suffix."""
        found = _PARTITION.match(self.local)
        return (TopicName(self.namespace, found[1]), int(found[2])) if found is not None and len(found[2]) < 8 else None

    def partition(self, index: int) -> "TopicName":
        """The name of a partition of this topic."""
        return TopicName(self.namespace, f"{self.local}-partition-{index}")


def parse(name: str) -> TopicName:
    """Parse a full or short topic name (`t`, `tenant/namespace/t`). Raises `Invalid`."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"topic {name!r}: an unpaired surrogate cannot be encoded as UTF-8") from error
    domain, found, rest = name.partition("://")
    if not found:
        domain, rest = _PERSISTENT, name if name.count("/") == 2 else f"{PUBLIC_DEFAULT}/{name}"
        if "/" in name and name.count("/") != 2:
            raise Invalid(f"topic {name!r}: expected a short name, or tenant/namespace/topic")
    if domain != _PERSISTENT:
        raise Invalid(f"topic {name!r}: expected a persistent:// topic")
    tenant, slash, rest = rest.partition("/")
    namespace, slash, local = rest.partition("/")
    if not slash or not local or "/" in local:
        raise Invalid(f"topic {name!r}: expected persistent://tenant/namespace/topic")
    return TopicName(check_namespace(f"{tenant}/{namespace}"), local)


def check_namespace(name: str) -> str:
    """Return `name` if it has the form `tenant/namespace`. Raises `Invalid`."""
    parts = name.split("/")
    if len(parts) != 2 or not all(map(_PART.match, parts)):
        raise Invalid(f"namespace {name!r}: expected tenant/namespace, of letters, digits and _ - = : % .")
    return name


def prefix_of(namespace: str) -> str | None:
    """How the names of the namespace's streams begin; None for public/default, whose streams have no common prefix.

    Streams of a namespace whose name continues this one's with an escaped byte begin so too: those of `acme/prod=x` and `acme/prod`.
    """
    if namespace == PUBLIC_DEFAULT:
        return None
    return "".join(_escape(part) + _SEPARATOR for part in namespace.split("/"))


def topic_of(stream: str) -> TopicName | None:
    """The topic of a stream; None if the stream has no name in Pulsar."""
    if _SEPARATOR not in stream:
        topic = TopicName(PUBLIC_DEFAULT, stream)
    else:
        parts = _unescape(stream) if _ESCAPE in stream else stream.split(_SEPARATOR)
        if parts is None or len(parts) != 3 or "/" in parts[2] or not all(map(_PART.match, parts[:2])):
            return None
        topic = TopicName(f"{parts[0]}/{parts[1]}", parts[2])
    return topic if topic.local and topic.stream == stream else None


def topics_in(namespace: str) -> Callable[[str], TopicName | None]:
    """Return a function that is as `topic_of` for streams of this namespace, and None for others, most of which it need not parse."""
    prefix = prefix_of(namespace)

    def find(stream: str) -> TopicName | None:
        if not (stream.startswith(prefix) if prefix is not None else _may_be_public(stream)):
            return None
        topic = topic_of(stream)
        return topic if topic is not None and topic.namespace == namespace else None

    return find


def _may_be_public(stream: str) -> bool:
    return _SEPARATOR not in stream or stream.startswith(_PUBLIC_DEFAULT_PREFIX)


def _escape(part: str) -> str:
    if _UNESCAPED.match(part) is not None:
        return part
    text = part.encode()
    escaped = []
    for at, byte in enumerate(text):
        is_between = 0 < at < len(text) - 1 and text[at - 1] in _WORD and text[at + 1] in _WORD
        is_plain = byte in _WORD or (byte == _DOT and is_between)
        escaped.append(chr(byte) if is_plain else f"...{byte:02x}")
    return "".join(escaped)


def _unescape(name: str) -> list[str] | None:
    parts = [bytearray()]
    at = 0
    while at < len(name):
        token = _TOKEN.match(name, at)
        if token is None:
            return None
        at = token.end()
        if token["separator"]:
            parts.append(bytearray())
        elif token["escape"]:
            parts[-1].append(int(token["escape"], 16))
        else:
            parts[-1] += token["plain"].encode()
    try:
        return [part.decode() for part in parts]
    except UnicodeDecodeError:
        return None
