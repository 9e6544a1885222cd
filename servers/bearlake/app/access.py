"""Access rules for a command, which opens the metadata store itself: it needs neither a running server nor a right.

Servers follow the change through the commit log.
"""

from collections.abc import Sequence

from bearlake.app.startup import opened_metadata
from bearlake.metadata.access_rules import AccessRule, RuleFilter, RuleSet
from bearlake.settings.document import Settings
from bearlake.streams.access.control import AccessControl


async def create(settings: Settings, rules: Sequence[AccessRule]) -> None:
    """Create the rules that do not exist, all or none. Raises `Invalid`, `Overloaded`, `Unavailable`."""
    async with opened_metadata(settings) as metadata:
        await AccessControl(metadata.access).create(rules)


async def delete(settings: Settings, selected: RuleFilter) -> Sequence[AccessRule]:
    """Delete the rules that the filter selects; returns them. Raises `Overloaded`, `Unavailable`."""
    async with opened_metadata(settings) as metadata:
        return (await AccessControl(metadata.access).delete([selected]))[0]


async def listed(settings: Settings, selected: RuleFilter) -> RuleSet:
    """Return the rules that the filter selects, in a fixed order, and all unknown rules. Raises `Unavailable`."""
    async with opened_metadata(settings) as metadata:
        return await AccessControl(metadata.access).select(selected)
