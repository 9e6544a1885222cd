"""The profile of full disks: stores run out of room, and writers give up soon. The rest is that of the streams or transactions profile."""

import random
from dataclasses import replace

from simulator.full_disks import FullDiskSettings
from simulator.scenario import ScenarioSettings, draw_settings
from simulator.transaction_scenario import draw_transaction_settings

GIVES_UP_MS = (50, 300, 1_500, 6_000)


def draw_full_disk_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed in the profile of full disks. Every third has transactional producers."""
    draw = random.Random(f"{seed} full disks")
    drawn = draw_transaction_settings(seed) if seed % 3 == 2 else draw_settings(seed)
    network = drawn.network
    if draw.random() < 0.6:
        network = replace(network, has_stores_here=True, can_be_late=False)
    disks = FullDiskSettings(
        fill_rate=draw.choice([0.002, 0.01, 0.05]),
        full_s=draw.choice([0.3, 2.0, 10.0]),
        gap_rate=draw.choice([0.0, 0.0, 0.1]),
    )
    writer = replace(drawn.streams.writer, commit_unknown_ms_max=draw.choice(GIVES_UP_MS))
    return replace(
        drawn,
        streams=replace(drawn.streams, writer=writer),
        network=replace(network, disks=disks),
    )
