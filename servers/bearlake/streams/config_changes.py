"""Checks of a stream's configs as a whole: contradictions, and what is fixed when the stream is created."""

from collections.abc import Collection, Mapping

from bearlake.errors import Invalid
from bearlake.streams import configs as stream_configs
from bearlake.streams.value_rules import check_subjects, declared
from bearlake.table.declared import check_evolution


def check_consistent(configs: Mapping[str, str]) -> None:
    """Raise `Invalid` if configs of one stream contradict each other. Source: Apache Kafka, `LogConfig.validateValues`."""
    least_ms, most_ms = (
        int(stream_configs.value(configs, name)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least_ms > most_ms:
        raise Invalid(
            f"conflict topic config setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({most_ms})"
        )
    check_subjects(configs)


FIXED = ("table.name", "table.namespace", "table.on_compaction")
"""Configs fixed at creation: a stream must map to the same table for its whole life (decision 79), and the table's rows to the same rule
(decision 176)."""


def check_change(before: Mapping[str, str], set_configs: Mapping[str, str], unset_configs: Collection[str]) -> None:
    """Raise `Invalid`, naming the config, if the change would alter a config that is fixed at creation, give a declared column another
    type, or make a contradiction; or if it unsets a config that does not exist."""
    for name in unset_configs:
        if not can_be_unset(before, name):
            raise stream_configs.unknown(name)
    after = {name: text for name, text in before.items() if name not in unset_configs} | dict(set_configs)
    check_consistent(after)
    check_evolution(declared(before), declared(after))
    for name in FIXED:
        if stream_configs.value(before, name) != stream_configs.value(after, name):
            raise Invalid(
                f"Topic config {name} is fixed when the topic is created: it is {stream_configs.value(before, name)!r}"
                f" and cannot become {stream_configs.value(after, name)!r}"
            )


def can_be_unset(before: Mapping[str, str], name: str) -> bool:
    """Return whether a config of this name exists, or the stream has one nevertheless: a later version of Bearlake has set it."""
    return name in stream_configs.BY_NAME or name in before
