"""Defaults: configs that streams of a group have unless they say otherwise.

The store keeps them; who makes streams copies them, and what the groups are is that protocol's business (Pulsar: namespaces).
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from bearlake.metadata.names import check_name

GROUP_NAME_BYTES_MAX = 1024


class Defaults(NamedTuple):
    """The configs of a group. `version` counts their changes; 0: nobody has ever set any."""

    configs: Mapping[str, str]
    version: int


NONE = Defaults({}, 0)


class DefaultsStore(Protocol):
    """Defaults by group."""

    async def get(self, group: str) -> Defaults:
        """The group's defaults as of now."""

    async def set(self, group: str, configs: Mapping[str, str], *, version: int) -> Defaults:
        """Replace the group's defaults, if they still have this version.

        Raises:
            Conflict: they have another one.
            Invalid: an empty name, or one longer than `GROUP_NAME_BYTES_MAX`.
        """


def check_group_name(group: str) -> None:
    """Raise `Invalid` unless a group may have that name."""
    check_name("a group's name", group, GROUP_NAME_BYTES_MAX)
