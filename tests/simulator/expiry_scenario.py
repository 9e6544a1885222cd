"""The expiry profile: idle producers expire during months in which a suspended server holds batches of these producers.

There is no orphan sweep, because forbidding a token would also refuse a late commit. For the same reason, most decisions about tokens
are kept.
"""

import random
from dataclasses import replace

from simulator.months import MonthsSettings
from simulator.network import NetworkSettings
from simulator.scenario import ScenarioSettings, draw_settings

FOR_EVER_MS = 10**12
HOURS_MS = 6 * 3_600_000
IDLE_MS = 600_000
QUIET_S = 1e9


def draw_expiry_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the expiry profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} expiry")
    streams = drawn.streams
    keep_ms = FOR_EVER_MS if draw.random() < 0.8 else HOURS_MS
    return replace(
        drawn,
        streams=replace(
            streams,
            writer=replace(
                streams.writer,
                linger_ms=draw.choice([5, 50, 250]),
                deadline_ms=6_000,
                commit_unknown_ms_max=FOR_EVER_MS,
            ),
            follower=replace(streams.follower, wait_ms=1_000),
            upkeep=replace(streams.upkeep, pause_ms=50, producer_pause_ms=50, producer_idle_ms=IDLE_MS),
        ),
        metadata=replace(
            drawn.metadata, token_result_keep_ms=keep_ms, deleted_keep_ms=keep_ms, forbidden_keep_ms=keep_ms
        ),
        network=NetworkSettings(delay_ms=draw.uniform(1, 10), lost_reply_rate=draw.choice([0.0, 0.02])),
        streams_of={"stream-0": (draw.randint(1, 2), {})},
        server_count=draw.randint(2, 3),
        idempotent_count=2,
        inferring_count=draw.randint(0, 1),
        plain_count=0,
        named_count=draw.randint(1, 2),
        conditional_count=0,
        renewal_rate=0.3,
        consumer_count=1,
        produce_pause_s=0.05,
        consume_pause_s=0.3,
        chaos_pause_s=QUIET_S,
        admin_pause_s=QUIET_S,
        sweep_pause_s=QUIET_S,
        months=MonthsSettings(
            pause_s=draw.uniform(0.1, 0.5), before_s=draw.uniform(0.2, 0.6), after_s=draw.uniform(0.1, 0.4)
        ),
    )
