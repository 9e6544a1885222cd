"""`bearlake export kafka`: a process that reads topics of a deployment as a Kafka client does, and writes them to another cluster.

It needs no stores: it runs wherever both clusters can be reached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bearlake.app.command_logs import for_commands
from bearlake.app.copying import Progress, first_answer, progress_of, run_shown
from bearlake.errors import Invalid, NotFound
from bearlake.exporting.groups import GroupMoves
from bearlake.exporting.selection import ExportSelection
from bearlake.exporting.target import ExportedTopic, ExportTarget
from bearlake.exporting.verifying import verify
from bearlake.importing.cluster import Connections, SourceCluster
from bearlake.importing.copying import Copy
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.verifying import Compared
from bearlake.settings.document import Given, Settings, load_document
from bearlake.telemetry.logs import set_up


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What to export. `source`, `target`: `host:port` of brokers, with commas; `patterns`: regular expressions of topics' names."""

    source: str
    target: str
    patterns: Sequence[str]
    follow: bool = False
    verify: bool = False
    """Compare both sides at the end; not with `follow`."""
    groups: bool = False
    """Move the committed offsets of groups."""
    may_append: bool = False
    """Write to topics of the target that have records which no export has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result: progress at the end, what could not be exported, and why."""

    progress: Progress
    left_configs: Mapping[str, Sequence[str]]
    """By topic that was created, the configs that the target does not take."""
    groups: Sequence[str]
    """Consumer groups whose offsets the target has."""
    refused_groups: Mapping[str, str]
    """Other groups, with the reason."""
    ended: Mapping[str, str]
    """Topics that could not be exported to the end, with the reason."""
    compared: Sequence[Compared]
    """The comparison of each partition; empty if it was not asked for."""


def settings_of(config: Path | None, environ: Mapping[str, str], options: Given) -> Settings:
    """Return the settings; the stores that they may name are not opened. Raises `Invalid`."""
    return load_document(config, environ, options, {}).settings


async def export_topics(
    settings: Settings, options: ExportOptions, show: Callable[[Progress], None] = lambda _: None
) -> Exported:
    """Export the topics that match now; with `follow`, until cancelled. `show` is called twice a second.

    Raises as `Copy.run`, `ExportTarget.begin` and `verify`; `Invalid` if source and target are one cluster.
    """
    set_up(for_commands(settings.logs))
    exports = settings.exports
    source = SourceCluster(options.source, exports.source)
    selection = ExportSelection(source, options.patterns, exports.target.ledger_topic)
    if not await first_answer(selection.look(), f"the source {options.source}"):
        raise NotFound(
            f"the source {options.source} has no topic that matches {' or '.join(options.patterns)}, or does not show it to this user"
        )
    target = SourceCluster(options.target, exports.target)
    await first_answer(target.topic(exports.target.ledger_topic), f"the target {options.target}")
    if source.cluster_id and source.cluster_id == target.cluster_id:
        raise Invalid(f"source and target are the same cluster, {source.cluster_id}")
    async with Connections(target) as connections:
        exported = ExportTarget(source, target, exports.target, connections, may_append=options.may_append)
        await exported.begin(source.cluster_id)
        groups = GroupMoves(source, target, exported, is_repeated=options.follow)
        copy = Copy(source, exported, selection, exports.copy, groups.move if options.groups else None)

        def progress() -> Progress:
            return progress_of(copy, lambda item: _row(item, exported))

        await run_shown(copy, lambda: show(progress()), follow=options.follow)
        compared: Sequence[Compared] = ()
        if options.verify:
            compared = await verify(source, target, exported, copy.partitions, selection.configs)
        return Exported(
            progress=progress(),
            left_configs=exported.topics.left,
            groups=groups.copied.names,
            refused_groups=groups.copied.refused,
            ended={name: str(error) for name, error in copy.ended.items()},
            compared=compared,
        )


def _row(item: PartitionCopy[ExportedTopic], exported: ExportTarget) -> dict[str, object]:
    runs = exported.ledger.accounts[item.topic.name, item.index].runs
    first, last = runs.first, runs.last
    shift = None if first is None or last is None else last[1] - last[0]
    # gaps only ever add up, so the first run and the newest one say whether there is one between them
    has_gaps = first is not None and (runs.dropped > 0 or first[1] - first[0] != shift)
    return {
        "topic": item.topic.name,
        "partition": item.index,
        "source_start": first and first[0],
        "target_start": first and first[1],
        "target_end": item.view.parts[item.index].target_next,
        "source_end": item.source_stable,
        "offsets": "other" if has_gaps else "same" if not shift else f"{shift:+d}",
        "lag": item.lag,
    }
