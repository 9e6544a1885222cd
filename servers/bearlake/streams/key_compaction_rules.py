"""The rules of key compaction, from a stream's configs."""

from collections.abc import Mapping
from dataclasses import dataclass

from bearlake.streams import configs as stream_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCompactionRules:
    """Rules of key compaction; times in ms. `keeps_history`: the table keeps the rows that leave the log."""

    lag_ms_min: int
    lag_ms_max: int
    dirty_ratio_min: float
    tombstone_keep_ms: int
    keeps_history: bool


def key_compaction_rules(configs: Mapping[str, str]) -> KeyCompactionRules | None:
    """Parse the rules of key compaction from a stream's configs, which must be checked already; None: there is no key compaction."""
    if not stream_configs.has_key_compaction(configs):
        return None
    return KeyCompactionRules(
        lag_ms_min=int(stream_configs.value(configs, "min.compaction.lag.ms")),
        lag_ms_max=int(stream_configs.value(configs, "max.compaction.lag.ms")),
        dirty_ratio_min=float(stream_configs.value(configs, "min.cleanable.dirty.ratio")),
        tombstone_keep_ms=int(stream_configs.value(configs, "delete.retention.ms")),
        keeps_history=stream_configs.value(configs, "table.on_compaction") == "history",
    )
