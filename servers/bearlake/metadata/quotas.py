"""Quotas: how much a client may use. Kafka's model of client quotas.

A quota limits one thing for one entity. An entity names a user, a client id, both, or an IP address; each part is a name, or the default
for all names without a quota of their own.

    users:   (user, client id) · (user, default) · (user) · (default, client id) · (default, default) · (default) · client id · default
    address: address · default

For each key, the first entity of that order which has a quota decides. A quota of a user without a client id is shared by all clients of
the user; one for a default is not shared between the names that it stands for.

All quotas share one revision, which grows with every change and never repeats. A change names the revision that its caller read, so a late
change of any process cannot bring back a quota that was replaced or deleted in the meantime (I12). Every change is a POLICY entry of the
commit log, which servers follow.

Source: KIP-13, KIP-55 (order), KIP-257 and KIP-546 (entities, filters), KIP-599 (mutations), KIP-612 (connections).
"""

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from bearlake.errors import Invalid
from bearlake.metadata.names import check_name

log = logging.getLogger(__name__)

QUOTA_COUNT_MAX = 10_000
"""Most quotas of a deployment. Every server holds all of them in memory."""

CHANGED_QUOTAS_MAX = 10_000
"""Most quotas that one change sets and deletes."""

QUOTA_NAME_BYTES_MAX = 512
"""Longest user, client id and address of an entity."""

VALUE_MIN = 1e-6
"""Smallest value of a quota: one in eleven days. Divided by the number of servers, it is still above zero."""

VALUE_MAX = float(2**53)
"""Greatest value of a quota."""


class QuotaKey(Enum):
    """What a quota limits. The values are Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second that clients produce, in the whole deployment."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second that clients consume, in the whole deployment."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Time that each server works for the clients, in percent of the time that passes."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions per second that clients create and delete, in the whole deployment."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Connections per second that clients of an address open, in the whole deployment."""


CLIENT_KEYS = frozenset(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}
"""What quotas of users and client ids limit."""

ADDRESS_KEYS = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
"""What quotas of addresses limit."""

WHOLE_KEYS = frozenset({QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.CONNECTION_CREATION_RATE})
"""Keys whose values are whole numbers."""


class Default(Enum):
    """The part of an entity that stands for all names without a quota of their own."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT

_NEEDS_QUOTES = re.compile(r"""[\s<>,;="']""")

Part = str | Default | None
"""A name, the default, or None: the entity does not depend on this."""


class Entity(NamedTuple):
    """Whom a quota limits: a user, a client id, both, or an address."""

    user: Part = None
    client_id: Part = None
    address: Part = None
    """An IP address."""

    def __str__(self) -> str:
        """Such as `user=alice, client-id=<default>`. A name that could be misread is quoted."""
        parts = (("user", self.user), ("client-id", self.client_id), ("ip", self.address))
        return ", ".join(f"{name}={_text(part)}" for name, part in parts if part is not None)


class Quota(NamedTuple):
    """The limit of one entity for one key."""

    entity: Entity
    key: QuotaKey
    value: float
    """From `VALUE_MIN` to `VALUE_MAX`, in the unit of the key."""


class QuotaChange(NamedTuple):
    """The change of one entity's quota for one key."""

    entity: Entity
    key: QuotaKey
    value: float | None
    """Replaces the quota; None: deletes it."""


class QuotaSet(NamedTuple):
    """All quotas as of one revision."""

    revision: int
    quotas: Sequence[Quota]
    """In no order."""


class Quotas(Protocol):
    """The quotas of the deployment."""

    async def revision(self) -> int:
        """Return how often the quotas were changed."""

    async def read(self) -> QuotaSet:
        """Return all quotas with their revision, as of one moment."""

    async def change(self, changes: Sequence[QuotaChange], *, revision: int) -> int:
        """Make all changes, or none, in one step with an entry of the commit log; returns the new revision.

        Deleting a quota that does not exist changes nothing.

        Raises:
            Conflict: the quotas have another revision; they were changed after the caller read it.
            Invalid: a change that cannot be stored (`check_change`), two changes of one quota, more than `CHANGED_QUOTAS_MAX` changes at
                once, or there would be more than `QUOTA_COUNT_MAX` quotas.
        """


def entities_of(user: str, client_id: str) -> Iterator[Entity]:
    """Yield the entities whose quotas may apply to a client, in the order of precedence (KIP-55). An empty client id is none."""
    for who in (user, DEFAULT):
        if client_id:
            yield Entity(user=who, client_id=client_id)
        yield Entity(user=who, client_id=DEFAULT)
        yield Entity(user=who)
    if client_id:
        yield Entity(client_id=client_id)
    yield Entity(client_id=DEFAULT)


def keys_of(entity: Entity) -> frozenset[QuotaKey]:
    """Return what quotas of the entity may limit. Raises `Invalid` for parts that no entity can have together."""
    has_client = entity.user is not None or entity.client_id is not None
    if has_client == (entity.address is not None):
        raise Invalid(f"quota entity {str(entity)!r}: expected a user, a client id, both, or an IP address")
    return CLIENT_KEYS if has_client else ADDRESS_KEYS


def check_change(change: QuotaChange) -> None:
    """Raise `Invalid`, naming the expected value, unless the change can be stored."""
    entity, key, value = change
    if key not in keys_of(entity):
        raise Invalid(f"{key.value} is not a quota of {entity}")
    for what, part in (("user", entity.user), ("client id", entity.client_id)):
        if isinstance(part, str):
            check_name(f"a quota's {what}", part, QUOTA_NAME_BYTES_MAX)
    if isinstance(entity.address, str):
        _check_address(entity.address)
    if value is None:
        return
    if not VALUE_MIN <= value <= VALUE_MAX:  # false for NaN
        raise Invalid(f"{key.value} is {value}, expected a number from {VALUE_MIN} to {VALUE_MAX:.0f}")
    if key in WHOLE_KEYS and value != math.floor(value):
        raise Invalid(f"{key.value} is {value}, expected a whole number")


def _check_address(text: str) -> None:
    try:
        usual = str(ip_address(text))
    except ValueError:
        raise Invalid(f"{text!r} is not an IP address") from None
    if text != usual:
        raise Invalid(f"the IP address {text} is written {usual}")


def check_quota_changes(changes: Sequence[QuotaChange]) -> None:
    """Raise `Invalid` as `Quotas.change` does."""
    if len(changes) > CHANGED_QUOTAS_MAX:
        raise Invalid(f"{len(changes)} changes of quotas at once; the limit is {CHANGED_QUOTAS_MAX}")
    if len({change[:2] for change in changes}) < len(changes):
        raise Invalid("two changes of one quota")
    for change in changes:
        check_change(change)


def check_quota_count(count: int) -> None:
    """Raise `Invalid` if a deployment may not have so many quotas."""
    if count > QUOTA_COUNT_MAX:
        raise Invalid(f"there would be {count} quotas; the limit is {QUOTA_COUNT_MAX}")


QuotaRow = tuple[str, str, str, str]
"""Entity and key as stores keep them: user, client id, address, key. A part is empty (None), `*` (the default), or `=` and the name."""


def quota_row(entity: Entity, key: QuotaKey) -> QuotaRow:
    """Return the stored form of an entity and a key."""
    return _stored(entity.user), _stored(entity.client_id), _stored(entity.address), key.value


def quotas_of(rows: Iterable[tuple[str, str, str, str, float]]) -> list[Quota]:
    """Return the quotas of stored rows and their values.

    Later versions may store other keys and values. A server cannot enforce those: it ignores them with a warning, and enforces the rest.
    """
    quotas, ignored = [], set()
    keys = {key.value: key for key in QuotaKey}
    for user, client_id, address, key, value in rows:
        if key in keys and VALUE_MIN <= value <= VALUE_MAX:
            quotas.append(Quota(Entity(_part(user), _part(client_id), _part(address)), keys[key], value))
        else:
            ignored.add(key)
    if ignored:
        log.warning("quotas of an unknown kind are ignored", extra={"keys": ", ".join(sorted(ignored))})
    return quotas


def key_of(text: str) -> QuotaKey:
    """Return the key of that name. Raises `Invalid`."""
    for key in QuotaKey:
        if key.value == text:
            return key
    raise Invalid(f"quota {text!r}, expected {', '.join(key.value for key in QuotaKey)}")


def _stored(part: Part) -> str:
    if part is None:
        return ""
    return "*" if isinstance(part, Default) else f"={part}"


def _part(text: str) -> Part:
    if not text:
        return None
    return DEFAULT if text == "*" else text[1:]


def _text(part: str | Default) -> str:
    """Return the default's name, or a name, in quotes if it could look like the default or like another part."""
    if isinstance(part, Default):
        return part.value
    return json.dumps(part, ensure_ascii=False) if _NEEDS_QUOTES.search(part) else part
