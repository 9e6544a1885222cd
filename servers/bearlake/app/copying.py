"""What `bearlake import` and `bearlake export` have in common: a copy of topics that runs while its progress is shown."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from bearlake.importing.progress import PartitionCopy, ViewT
from bearlake.importing.running import CopyRun

T = TypeVar("T")

NOTICE_S = 5.0
"""How long (s) a command waits for the first answer of a cluster without a word."""
SHOW_S = 0.5
"""Time (s) between two calls of `show`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a copy is. `lag`: offsets that the source has and the target does not."""

    copied_bytes: int
    lag: int
    partitions: Sequence[Mapping[str, object]]
    """A row for each partition, with the columns of the command."""


def progress_of(copy: CopyRun[ViewT], row: Callable[[PartitionCopy[ViewT]], Mapping[str, object]]) -> Progress:
    """Return how far a copy is; `row` makes the row of a partition."""
    return Progress(
        copied_bytes=copy.copied.bytes,
        lag=sum(item.lag for item in copy.partitions),
        partitions=[row(item) for item in copy.partitions],
    )


async def first_answer(asking: Coroutine[Any, Any, T], peer: str) -> T:
    """Return the answer; say on standard error if `peer` takes long. Raises as `asking`, which has a limit of its own."""
    asked = asyncio.ensure_future(asking)
    try:
        if not (await asyncio.wait({asked}, timeout=NOTICE_S))[0]:
            click.echo(f"bearlake: no answer from {peer} yet; waiting", err=True)
        return await asked
    finally:
        asked.cancel()
        await asyncio.wait({asked})


async def run_shown(copy: CopyRun[ViewT], show: Callable[[], None], *, follow: bool) -> None:
    """Run the copy, and call `show` twice a second. Raises as `CopyRun.run`; with `follow`, runs until cancelled."""
    running = asyncio.ensure_future(copy.run(follow=follow))
    try:
        while not (await asyncio.wait({running}, timeout=SHOW_S))[0]:
            show()
        await running
    finally:
        running.cancel()
        await asyncio.wait({running})
