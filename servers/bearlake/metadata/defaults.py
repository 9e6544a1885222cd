"""Defaults: configs that streams of a group have unless they set others.

The store keeps the defaults. The protocol that creates streams copies the defaults and defines the groups (Pulsar: namespaces).
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from bearlake.metadata.names import check_name, is_name

GROUP_NAME_BYTES_MAX = 1024


class Defaults(NamedTuple):
    """The configs of a group. `version` counts their changes; 0: never set."""

    configs: Mapping[str, str]
    version: int


NONE = Defaults({}, 0)


class DefaultsStore(Protocol):
    """Defaults by group."""

    async def get(self, group: str) -> Defaults:
        """Return the group's defaults as of now."""

    async def set(self, group: str, configs: Mapping[str, str], *, version: int) -> Defaults:
        """Replace the group's defaults, if they still have this version.

        Raises:
            Conflict: the defaults have another version.
            Invalid: the name is empty, or longer than `GROUP_NAME_BYTES_MAX`.
        """


def is_group_name(group: str) -> bool:
    """Return whether a group that commits offsets may have this name, which may be empty."""
    return group == "" or is_name(group, GROUP_NAME_BYTES_MAX)


def check_group_name(group: str) -> None:
    """Raise `Invalid` unless `group` is a valid name of a group."""
    check_name("a group's name", group, GROUP_NAME_BYTES_MAX)
