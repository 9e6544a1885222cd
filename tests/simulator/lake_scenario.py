"""The compaction profile: a seed's scenario with workers, tables, retention and sweeps, and limits small enough to be reached."""

import random
from dataclasses import replace

from bearlake.compaction.settings import (
    CompactionSettings,
    MergeSettings,
    PlannerSettings,
    SweepSettings,
    WorkerSettings,
)
from bearlake.compaction.workbench import TaskLimits
from bearlake.streams.history import HistorySettings
from bearlake.table.reader import DataFileSettings
from bearlake.table.settings import TableSettings
from simulator.lake import LakeSettings
from simulator.scenario import ScenarioSettings, draw_settings


def draw_lake_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the compaction profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} lake")
    # Clients send batches with unreadable records, which servers store only if they check headers alone.
    unchecked = {"record.validation": "header"}
    streams_of = {
        name: (count, {**configs, **_configs(draw), **unchecked}) for name, (count, configs) in drawn.streams_of.items()
    }
    history = HistorySettings(
        piece_count_max=int(_log(draw, 2, 1_000)),
        block_bytes_max=int(_log(draw, 1_000, 1_000_000)),
        decoding_bytes_max=(loading_bytes_max := int(_log(draw, 1_000, 1_000_000))),
        reading_bytes_max=loading_bytes_max,
        footer_bytes_max=int(_log(draw, 1_000, 1_000_000)),
        read_ahead_count=draw.randint(0, 2),
        files=DataFileSettings(thread_count=0, compressed_bytes_min=int(_log(draw, 100, 10_000))),
    )
    later = random.Random(f"{seed} lake that came later")
    is_absent = later.random() < 0.4
    return replace(
        drawn,
        network=replace(
            drawn.network, can_be_late=False
        ),  # I12: a worker that gave up a claim looks once, after its next write
        streams=replace(drawn.streams, history=history),
        streams_of=streams_of,
        duration_s=min(drawn.duration_s, 4.0),
        lake=LakeSettings(
            compaction=_compaction(draw),
            table=TableSettings(snapshot_keep_ms=int(_log(draw, 200, 5_000)), snapshot_count_min=1),
            limits=TaskLimits(
                window_bytes=int(_log(draw, 100, 100_000)),
                kept_bytes=int(_log(draw, 100, 100_000)),
                merge_bytes=int(_log(draw, 1_000, 100_000)),
            ),
            worker_count=draw.randint(1, 3),
            chaos_pause_s=_log(draw, 0.3, 3),
            chaos_weights=[0.05 + (1 if draw.random() < 0.6 else 0) for _ in range(4)],
            crash_rate=draw.choice([0.0, 0.005, 0.03]),
            poison_rate=draw.choice([0.0, 0.0, 0.1]),
            codec_rate=draw.choice([0.0, 0.3]),
            inexact_rate=draw.choice([0.0, 0.0, 0.1]) + (0.2 if is_absent else 0.0),
            crash_before_swap_rate=0.3 if is_absent else 0.0,
            absence_rate=0.7 if is_absent else 0.0,
            is_sweep_aggressive=later.random() < 0.3,
            unreadable=later.choice(["", "", *sorted(streams_of)]),
            number_gap=later.choice([0, 100, 10_000]),
        ),
    )


def _configs(draw: random.Random) -> dict[str, str]:
    configs = {"table.freshness_ms": str(int(_log(draw, 200, 4_000)))}
    if draw.random() < 0.15:
        configs["table.enable"] = "false"
    if draw.random() < 0.5:
        configs["table.on_delete"] = "drop"
    if draw.random() < 0.2:
        configs["retention.ms"] = str(int(_log(draw, 1_000, 10_000)))
    if draw.random() < 0.2:
        configs["retention.bytes"] = str(int(_log(draw, 500, 20_000)))
    return configs


def _compaction(draw: random.Random) -> CompactionSettings:
    deadline_ms = int(_log(draw, 700, 1_500))
    return CompactionSettings(
        planner=PlannerSettings(
            due_fraction=draw.uniform(0.1, 0.6),
            due_bytes=int(_log(draw, 300, 20_000)),
            task_bytes_max=int(_log(draw, 300, 20_000)),
            task_partition_count_max=draw.randint(1, 4),
            task_slice_count_max=int(_log(draw, 2, 100)),
            stream_task_count_max=draw.randint(1, 3),
            open_task_count_max=int(_log(draw, 2, 100)),
            partition_count_max=int(_log(draw, 3, 100)),
            page_count=int(_log(draw, 1, 100)),
            pause_ms=int(_log(draw, 10, 200)),
            wait_ms=int(_log(draw, 50, 1_000)),
            reconcile_ms=int(_log(draw, 300, 3_000)),
            retry_pause_ms=int(_log(draw, 50, 500)),
        ),
        worker=WorkerSettings(
            claim_count_max=int(_log(draw, 1, 10)),
            claim_bytes_max=int(_log(draw, 300, 100_000)),
            claim_pause_ms=int(_log(draw, 50, 500)),
            item_bytes_max=int(_log(draw, 200, 10_000)),
            row_group_bytes=int(_log(draw, 300, 20_000)),
            commits_under_way_max=draw.randint(1, 2),
            store_calls_max=draw.randint(1, 4),
            deadline_ms=deadline_ms,
            attempts_max=draw.randint(1, 3),
            retry_first_ms=int(_log(draw, 20, 500)),
            retry_max_ms=2_000,
            unavailable_pause_ms=int(_log(draw, 20, 300)),
            quarantine_bytes_max=int(_log(draw, 200, 10_000)),
        ),
        merge=MergeSettings(
            file_bytes=int(_log(draw, 3_000, 100_000)),
            fan_in=draw.randint(2, 4),
            input_count_max=draw.randint(4, 8),
            open_task_count_max=draw.randint(1, 2),
        ),
        sweep=SweepSettings(
            grace_ms=int(_log(draw, 50, 3_000)),
            pause_ms=int(_log(draw, 100, 1_000)),
            page_count=int(_log(draw, 1, 50)),
            file_pause_ms=int(_log(draw, 200, 2_000)),
            orphan_grace_ms=6_000,
            orphan_pause_ms=int(_log(draw, 200, 2_000)),
            quarantine_retry_ms=int(_log(draw, 500, 4_000)),
            retention_pause_ms=int(_log(draw, 300, 3_000)),
            table_pause_ms=int(_log(draw, 300, 3_000)),
            retry_pause_ms=int(_log(draw, 50, 500)),
        ),
    )


def _log(draw: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** draw.random())
