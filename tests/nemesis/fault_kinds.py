"""Every kind of fault, by name."""

from collections.abc import Sequence

from nemesis import network_faults, process_faults, standby_faults, store_faults
from nemesis.process_faults import Fault
from nemesis.world import World

KINDS: Sequence[type[Fault]] = (
    *process_faults.KINDS,
    *store_faults.KINDS,
    *standby_faults.KINDS,
    *network_faults.KINDS,
)


def of(names: Sequence[str], world: World) -> tuple[list[type[Fault]], list[str]]:
    """The kinds of these names that are possible here (all, without names), and the names of those that are not."""
    by_name = {kind.name: kind for kind in KINDS}
    wanted = [by_name[name] for name in names] if names else KINDS
    possible = [kind for kind in wanted if kind.is_possible(world)]
    return possible, [kind.name for kind in wanted if kind not in possible]
