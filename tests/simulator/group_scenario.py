"""The groups profile: a seed's scenario with members of consumer groups, and servers that freeze, are cut off, and return.

Servers only send heartbeats and coordinate groups. A metadata store call that a server gave up cannot take effect after the server's
next write has begun; the store's client ensures this.
"""

import random
from dataclasses import replace

from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings
from simulator.members import TOPIC, MemberSettings
from simulator.scenario import ScenarioSettings, draw_settings
from simulator.streams_members import StreamsMember
from simulator.subscriber_scenario import BeatingStreams

QUIET_S = 1e9


def draw_group_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the groups profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} groups")
    session_timeout_ms = draw.choice([3_000, 6_000, 15_000])
    return replace(
        drawn,
        streams=replace(
            drawn.streams,
            groups=GroupSettings(session_timeout_min_ms=100, initial_rebalance_delay_ms=draw.choice([0, 0, 500])),
            follower=replace(drawn.streams.follower, wait_ms=5_000),
            upkeep=replace(drawn.streams.upkeep, pause_ms=20_000),
        ),
        streams_class=BeatingStreams,
        network=replace(drawn.network, late_rate=draw.choice([0.0, 0.02]), can_be_late=False),
        streams_of={},
        server_count=draw.randint(2, 3),
        duration_s=draw.uniform(60, 180),
        idempotent_count=0,
        inferring_count=0,
        plain_count=0,
        named_count=0,
        conditional_count=0,
        consumer_count=0,
        chaos_pause_s=draw.uniform(10, 60),
        chaos_weights=[1, 1, 1, 0.5, 1, 0, 1],
        admin_pause_s=QUIET_S,
        sweep_pause_s=QUIET_S,
        members=MemberSettings(
            group_count=draw.randint(1, 2),
            member_count=draw.randint(2, 4),
            partition_count=draw.randint(1, 4),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=draw.choice([2_000, session_timeout_ms, 20_000]),
            heartbeat_ms=session_timeout_ms // 4,
            commit_rate=draw.choice([0.0, 0.5]),
            leave_rate=draw.choice([0.01, 0.1]),
            silence_rate=draw.choice([0.0, 0.05]),
            chaos_pause_s=draw.uniform(3, 15),
            chaos_weights=[0.05 + (weight if draw.random() < 0.6 else 0) for weight in (1, 4, 1, 1, 3, 1, 0.3)],
        ),
    )


def draw_streams_group_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed with streams groups (KIP-1071) in place of consumer groups.

    The rebalance timeout is longer than the session timeout, as in Kafka Streams. It runs from the moment when the coordinator decides
    that a member must give a task up, and the member learns of that later. A member without an answer for a session timeout gives up by
    itself.
    """
    drawn = draw_group_settings(seed)
    draw = random.Random(f"{seed} streams groups")
    assert drawn.members is not None
    members = replace(
        drawn.members,
        partition_count=draw.randint(2, 6),
        rebalance_timeout_ms=4 * drawn.members.session_timeout_ms,
        makes=StreamsMember,
    )
    tasks = StreamsGroupSettings(
        session_timeout_ms=members.session_timeout_ms,
        session_timeout_min_ms=100,
        heartbeat_interval_ms=members.heartbeat_ms,
        heartbeat_interval_min_ms=100,
        initial_rebalance_delay_ms=draw.choice([0, 500, 3_000]),
        assignment_interval_ms=draw.choice([0, 1_000]),
    )
    streams = replace(drawn.streams, groups=replace(drawn.streams.groups, streams=tasks))
    return replace(drawn, streams=streams, members=members, streams_of={TOPIC: (members.partition_count, {})})
