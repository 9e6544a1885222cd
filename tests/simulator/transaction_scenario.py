"""The transactions profile: a seed's scenario with transactional producers beside all others, and short timeouts of transactions."""

import random
from dataclasses import replace

from bearlake.streams.transactions import TransactionSettings
from simulator.scenario import ScenarioSettings, draw_settings
from simulator.transactional import TransactionalSettings


def draw_transaction_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the transactions profile."""
    drawn = draw_settings(seed)
    draw = random.Random(f"{seed} transactions")
    trim_weight = draw.choice([0.0, 0.0, 0.0, 0.5])
    return replace(
        drawn,
        streams=replace(drawn.streams, transactions=TransactionSettings(expire_pause_ms=draw.choice([100, 1_000]))),
        duration_s=draw.uniform(6, 15),
        produce_pause_s=draw.choice([0.02, 0.1]),
        consumer_count=2,
        admin_weights=[trim_weight, 0, 0.2, 0.2, 1, 0],
        transactional=TransactionalSettings(
            producer_count=draw.randint(1, 3),
            timeout_ms=draw.choice([300, 2_000, 60_000]),
            crash_rate=draw.choice([0.0, 0.03, 0.1]),
            abort_rate=draw.choice([0.1, 0.4]),
            late_rate=draw.choice([0.0, 0.1]),
            zombie_rate=draw.choice([0.0, 0.5]),
        ),
    )
