"""Which changes a stream needs to match its Stream resource.

- An existing stream is adopted: configs that the resource names are set, all others stay.
- A config that the resource named before (`status.appliedConfigs`) and no longer names is unset.
- Changes made elsewhere are reverted, except that the number of partitions never shrinks.
- A stream with a source is created by its import, with the partitions of the source's topic. It is promoted when the source is removed:
  then `import.source` is a config that the resource names no longer.
"""

from collections.abc import Collection

from bearlake_operator.admin import ObservedStream, StreamChange
from bearlake_operator.api import StreamSpec

IMPORT_SOURCE = "import.source"
"""The config of a stream that is being imported."""


def change_for(spec: StreamSpec, observed: ObservedStream | None, applied: Collection[str]) -> StreamChange | None:
    """The change that makes the stream match `spec`, None if it matches. `applied` are the configs set so far."""
    if observed is None and spec.source:
        return None
    if observed is None:
        return StreamChange(name=spec.name, is_new=True, partitions=spec.partitions, set_configs=spec.configs)
    differing = {name: value for name, value in spec.configs.items() if observed.configs.get(name) != value}
    named = {*spec.configs, *([IMPORT_SOURCE] if spec.source else [])}
    dropped = {name for name in applied if name not in named and name in observed.configs}
    partitions = spec.partitions if observed.partitions < spec.partitions and not spec.source else None
    if not differing and not dropped and partitions is None:
        return None
    return StreamChange(
        name=spec.name, is_new=False, partitions=partitions, set_configs=differing, unset_configs=sorted(dropped)
    )


def excess_partitions(spec: StreamSpec, observed: ObservedStream) -> str:
    """The message for a stream with more partitions than `spec` asks for, else empty."""
    if observed.partitions > spec.partitions and not spec.source:
        return (
            f"The stream has {observed.partitions} partitions, but spec.partitions is {spec.partitions}. "
            "The number of partitions can only grow."
        )
    return ""


def describe_drift(change: StreamChange) -> str:
    """The note of the Event for a synced stream that was changed elsewhere and is repaired by `change`."""
    if change.is_new:
        return f"The stream {change.name} was deleted elsewhere. It was created again, empty."
    changed = [*change.set_configs, *change.unset_configs, *(["partitions"] if change.partitions else [])]
    return f"Reverted changes that were made elsewhere: {', '.join(sorted(changed))}."
