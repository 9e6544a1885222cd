"""The subscriptions profile: a seed's scenario with subscriptions of all types, and limits small enough to be reached."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typing_extensions import override

from bearlake.errors import Fenced
from bearlake.metadata.model import ServerRef
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.model import SubscriptionType
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.streams.tenure import Tenure
from simulator.heartbeats import Heartbeats
from simulator.scenario import ScenarioSettings, draw_settings
from simulator.subscribers import SubscriberSettings

HEARTBEAT_MS = 1_000
DOOMED_PUT_RATE_MAX = 0.02
"""Maximum fraction of batches that can never be put; the streams profile has a higher fraction."""
LIVE_MS = 10_000
"""Time after which a simulated server whose heartbeats stopped is declared lapsed."""


class BeatingStreams(Streams):
    """A stream service that keeps its registration alive and watches the others, as a server's process does."""

    def __init__(
        self,
        metadata: Any,
        store: Any,
        server: ServerRef,
        settings: Any,
        *,
        on_fenced: Callable[[], None],
        **named: Any,
    ) -> None:
        # Any: passed unchanged to `Streams`
        loop = asyncio.get_running_loop()
        tenure = Tenure(metadata.servers, server, timeout_ms=LIVE_MS, boot_time_s=loop.time)
        self._on_fenced = on_fenced
        self._beats = Heartbeats(metadata.servers, tenure, HEARTBEAT_MS, LIVE_MS)
        super().__init__(metadata, store, server, settings, on_fenced=on_fenced, tenure=tenure, **named)

    @override
    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._beat())

    @override
    async def close(self) -> None:
        await super().close()
        await self.tenure.close()

    async def _beat(self) -> None:
        try:
            await self._beats.run()
        except Fenced:
            self._on_fenced()


def draw_subscriber_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the subscriptions profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} subscribers")
    types = list(SubscriptionType)
    chosen = [draw.choice(types), draw.choice([SubscriptionType.KEY_SHARED, SubscriptionType.SHARED])]
    return replace(
        drawn,
        streams=replace(drawn.streams, subscriptions=_limits(draw)),
        network=replace(drawn.network, doomed_put_rate=min(drawn.network.doomed_put_rate, DOOMED_PUT_RATE_MAX)),
        inferring_count=0,
        streams_of={name: (min(count, 2), configs) for name, (count, configs) in drawn.streams_of.items()},
        streams_class=BeatingStreams,
        duration_s=min(drawn.duration_s, 4.0),
        consumer_count=1,
        subscribers=SubscriberSettings(
            subscriptions=[(f"{type_.value}-{at}", type_) for at, type_ in enumerate(chosen[: draw.randint(1, 2)])],
            consumer_count=draw.randint(2, 6),
            pause_s=_log(draw, 0.01, 0.2),
            permits_max=int(_log(draw, 1, 50)),
            leave_rate=_log(draw, 0.01, 0.3),
            keep_rate=draw.choice([0.0, 0.2, 0.6]),
            nack_rate=draw.choice([0.0, 0.0, 0.1, 0.3]),
            part_rate=draw.choice([0.0, 0.2]),
            flush_rate=draw.choice([0.05, 0.5]),
        ),
    )


def _limits(draw: random.Random) -> SubscriptionSettings:
    return SubscriptionSettings(
        read_bytes_max=int(_log(draw, 100, 100_000)),
        replay_range_count_max=draw.randint(1, 16),
        burst_entry_count_max=draw.randint(1, 20),
        unacknowledged_per_consumer_max=int(_log(draw, 4, 1_000)),
        unacknowledged_per_subscription_max=int(_log(draw, 8, 2_000)),
        range_count_max=int(_log(draw, 2, 1_000)),
        held_entry_count_max=int(_log(draw, 1, 1_000)),
        delayed_entry_count_max=int(_log(draw, 1, 1_000)),
        known_entry_count_max=int(_log(draw, 2, 1_000)),
        handover_ms=int(_log(draw, 10, 1_000)),
        save_ms=int(_log(draw, 10, 500)),
        retry_pause_ms=int(_log(draw, 10, 200)),
        tail_wait_ms=int(_log(draw, 200, 5_000)),
        idle_ms=int(_log(draw, 100, 5_000)),
    )


def _log(draw: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** draw.random())
