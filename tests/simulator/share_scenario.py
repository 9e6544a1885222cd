"""The shares profile: a seed's scenario with share groups, whose locks are short and whose limits are small enough to be reached."""

import random
from dataclasses import replace

from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from simulator.scenario import ScenarioSettings, draw_settings
from simulator.share_members import ShareSettings
from simulator.subscriber_scenario import DOOMED_PUT_RATE_MAX, BeatingStreams


def draw_share_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the shares profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} shares")
    group_count = draw.randint(1, 2)
    return replace(
        drawn,
        streams=replace(
            drawn.streams,
            groups=GroupSettings(
                share=ShareGroupSettings(
                    auto_offset_reset="earliest",
                    record_lock_duration_ms=int(_log(draw, 100, 3_000)),
                    delivery_count_limit=draw.randint(2, 6),
                    partition_record_locks=int(_log(draw, 5, 500)),
                )
            ),
            subscriptions=SubscriptionSettings(
                save_ms=int(_log(draw, 10, 500)),
                retry_pause_ms=int(_log(draw, 10, 200)),
                idle_ms=int(_log(draw, 100, 5_000)),
            ),
        ),
        network=replace(drawn.network, doomed_put_rate=min(drawn.network.doomed_put_rate, DOOMED_PUT_RATE_MAX)),
        inferring_count=0,
        streams_of={name: (min(count, 2), configs) for name, (count, configs) in drawn.streams_of.items()},
        streams_class=BeatingStreams,
        duration_s=min(drawn.duration_s, 4.0),
        consumer_count=1,
        shares=ShareSettings(
            groups=[f"group-{at}" for at in range(group_count)],
            member_count=draw.randint(group_count + 1, 5),
            pause_s=_log(draw, 0.01, 0.2),
            record_count_max=int(_log(draw, 1, 100)),
            bytes_max=int(_log(draw, 100, 100_000)),
            wait_ms_max=int(_log(draw, 50, 2_000)),
            strict_rate=draw.choice([0.0, 0.5, 1.0]),
            release_rate=draw.choice([0.0, 0.1, 0.4]),
            reject_rate=draw.choice([0.0, 0.05]),
            renew_rate=draw.choice([0.0, 0.2]),
            forget_rate=draw.choice([0.0, 0.1, 0.4]),
            late_rate=draw.choice([0.0, 0.2]),
            twice_rate=draw.choice([0.0, 0.2]),
            leave_rate=draw.choice([0.01, 0.1]),
            lost_rate=draw.choice([0.0, 0.1]),
        ),
    )


def _log(draw: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** draw.random())
