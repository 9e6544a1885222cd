"""Every kind of fault, by name."""

from collections.abc import Sequence

from nemesis import backup_faults, network_faults, process_faults, standby_faults, store_faults
from nemesis.cluster import Cluster
from nemesis.process_faults import Fault

KINDS: Sequence[type[Fault]] = (
    *process_faults.KINDS,
    *store_faults.KINDS,
    *standby_faults.KINDS,
    *network_faults.KINDS,
    *backup_faults.KINDS,
)


def select(names: Sequence[str], cluster: Cluster) -> tuple[list[type[Fault]], list[str]]:
    """Return the named kinds of faults that are possible here (all kinds if `names` is empty), and the names of the others."""
    by_name = {kind.name: kind for kind in KINDS}
    wanted = [by_name[name] for name in names] if names else KINDS
    possible = [kind for kind in wanted if kind.is_possible(cluster)]
    return possible, [kind.name for kind in wanted if kind not in possible]
