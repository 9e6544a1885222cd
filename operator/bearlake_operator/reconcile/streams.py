"""What has to change in a data layer so that its streams are what their resources say.

- A stream that exists is adopted: what the resource names is set, everything else stays.
- What the resource named before (`status.appliedConfigs`) and names no more is unset.
- What somebody changed elsewhere is changed back, except that partitions only grow.
"""

from collections.abc import Collection

from bearlake_operator.admin import ObservedStream, StreamChange
from bearlake_operator.api import StreamSpec


def change_of(spec: StreamSpec, observed: ObservedStream | None, applied: Collection[str]) -> StreamChange | None:
    """The change that is due, None when there is none."""
    if observed is None:
        return StreamChange(name=spec.name, is_new=True, partitions=spec.partitions, set_configs=spec.configs)
    wrong = {name: value for name, value in spec.configs.items() if observed.configs.get(name) != value}
    dropped = {name for name in applied if name not in spec.configs and name in observed.configs}
    partitions = spec.partitions if observed.partitions < spec.partitions else None
    if not wrong and not dropped and partitions is None:
        return None
    return StreamChange(
        name=spec.name, is_new=False, partitions=partitions, set_configs=wrong, unset_configs=sorted(dropped)
    )


def complaint_of(spec: StreamSpec, observed: ObservedStream) -> str:
    """What cannot be made as the resource says; empty when there is nothing."""
    if observed.partitions > spec.partitions:
        return (
            f"The stream has {observed.partitions} partitions, spec says {spec.partitions}: partitions can only grow."
        )
    return ""


def drift_of(change: StreamChange) -> str:
    """What somebody had changed elsewhere, of a stream that was as its resource says: for the Event that tells of its repair."""
    if change.is_new:
        return f"The stream {change.name} had been deleted, and was made anew, empty."
    changed = [*change.set_configs, *change.unset_configs, *(["partitions"] if change.partitions else [])]
    return f"Changed elsewhere, and changed back: {', '.join(sorted(changed))}."
