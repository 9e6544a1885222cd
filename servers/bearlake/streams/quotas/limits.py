"""The quotas, compiled: which of them applies to a client, by KIP-55's order of precedence."""

from collections.abc import Collection
from typing import NamedTuple

from bearlake.metadata.quotas import DEFAULT, Default, Entity, Quota, QuotaKey, entities_of


class Limit(NamedTuple):
    """The quota that applies to a client."""

    name: tuple[QuotaKey, Entity]
    """The bucket: clients with the same name share the quota. Its entity has names in the place of defaults."""
    value: float


class Limits:
    """An immutable table of quotas."""

    __slots__ = ("_values",)

    def __init__(self, quotas: Collection[Quota]) -> None:
        self._values: dict[QuotaKey, dict[Entity, float]] = {}
        for entity, key, value in quotas:
            self._values.setdefault(key, {})[entity] = value

    @property
    def keys(self) -> Collection[QuotaKey]:
        """The keys for which any client has a quota."""
        return self._values.keys()

    def of_client(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """Return the quota that applies to a user with a client id (empty: none)."""
        values = self._values.get(key)
        if values is None:
            return None
        for entity in entities_of(user, client_id):
            value = values.get(entity)
            if value is not None:
                owner = Entity(
                    user=None if entity.user is None else user,
                    client_id=None if entity.client_id is None else client_id,
                )
                return Limit((key, owner), value)
        return None

    def of_address(self, key: QuotaKey, address: str) -> Limit | None:
        """Return the quota that applies to an IP address."""
        values = self._values.get(key)
        if values is None:
            return None
        parts: tuple[str | Default, ...] = (address, DEFAULT)
        for part in parts:
            value = values.get(Entity(address=part))
            if value is not None:
                return Limit((key, Entity(address=address)), value)
        return None
