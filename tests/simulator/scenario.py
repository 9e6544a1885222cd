"""One seed of the simulation: draw a deployment and its faults, run it, heal it, and check the final state."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bearlake.cache.objects import CacheSettings
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.objects.retrying import RetrySettings
from bearlake.streams.fetch import ReaderSettings
from bearlake.streams.follower import FollowerSettings
from bearlake.streams.history import HistorySettings
from bearlake.streams.service import Streams, StreamsSettings
from bearlake.streams.upkeep import UpkeepSettings
from bearlake.streams.writer_settings import WriterSettings
from bearlake.table.reader import DataFileSettings
from simulator import share_members, subscribers
from simulator.chaos import Admin, Chaos, sweep
from simulator.clients import Client, IdempotentProducer, InferringProducer, PlainProducer
from simulator.consumers import Consumer
from simulator.deployment import Deployment, MetadataWrapper
from simulator.ending import ARRIVAL_DEADLINES, check_end
from simulator.lake import LakeSettings
from simulator.logged_errors import LoggedErrors
from simulator.loop import SimulationLoop
from simulator.members import MemberSettings
from simulator.months import Months, MonthsSettings
from simulator.named_clients import ConditionalProducer, NamedClient
from simulator.network import NetworkSettings, run_in
from simulator.queries import query, read_rows
from simulator.share_members import ShareSettings
from simulator.subscribers import SubscriberSettings
from simulator.transactional import TransactionalProducer, TransactionalSettings
from simulator.truth import Violation

READ_ON_S = 2.0
"""Virtual time during which consumers keep reading while a healed deployment compacts the rest."""
FINISH_S = 120.0
"""Maximum virtual time until all producers of a healed deployment know the fate of their batches and all servers have caught up."""
TIME_MAX_S = 600.0
"""Maximum virtual time of a run without skipped months."""


def _unchanged(metadata: Any) -> Any:
    return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSettings:
    """All settings of one run, except its random seed."""

    streams: StreamsSettings
    retries: RetrySettings
    metadata: SqliteSettings
    network: NetworkSettings
    streams_of: Mapping[str, tuple[int, Mapping[str, str]]]
    """Name → partition count and configs."""
    server_count: int = 3
    duration_s: float = 4.0
    idempotent_count: int = 2
    plain_count: int = 1
    named_count: int = 0
    conditional_count: int = 0
    inferring_count: int = 0
    """Idempotent producers that infer from a success that all earlier batches succeeded, as librdkafka does."""
    renewal_rate: float = 0.0
    """Probability, per round and partition, that an idempotent producer without unknown batches begins a new epoch."""
    consumer_count: int = 2
    produce_pause_s: float = 0.1
    consume_pause_s: float = 0.05
    chaos_pause_s: float = 1.0
    admin_pause_s: float = 0.5
    chaos_weights: Sequence[float] = (1, 1, 1, 1, 1, 1, 1)
    """Weights of crash, zombie, freeze, graceful stop, cut connections, stall of objects, stall of metadata."""
    admin_weights: Sequence[float] = (1, 0.2, 0.2, 0.2, 2, 0)
    """Weights of trim, delete, grow, alter, probe, terminate."""
    sweep_pause_s: float = 1.0
    orphan_grace_ms: int = 6_000
    unused_grace_ms: int = 3_000
    value_bytes_max: int = 2_000
    fetch_wait_ms: float = 500.0
    lake: LakeSettings | None = None
    """Compaction; None: nothing is compacted, and the scenario's own sweep deletes unused objects."""
    subscribers: SubscriberSettings | None = None
    """Consumers of subscriptions; None: no such consumers."""
    members: MemberSettings | None = None
    """Members of consumer groups; None: no members."""
    shares: ShareSettings | None = None
    """Members of share groups; None: no such members."""
    transactional: TransactionalSettings | None = None
    """Transactional producers; None: there are none. With them, `transaction_history` judges instead of the history checker."""
    months: MonthsSettings | None = None
    """Months that pass while servers are suspended, so that producers expire; `duration_s` is then ignored. None: no months pass."""
    streams_class: type[Streams] = Streams
    wrap_metadata: MetadataWrapper = _unchanged


def draw_settings(seed: int) -> ScenarioSettings:
    """Draw the scenario of a seed: limits small enough to be reached, and a random mix of faults."""
    draw = random.Random(f"{seed} settings")

    def log(low: float, high: float) -> float:
        return float(low * (high / low) ** draw.random())

    def often(value: float) -> float:
        return value if draw.random() < 0.6 else 0.0

    streams = StreamsSettings(
        writer=WriterSettings(
            object_bytes_max=int(log(300, 20_000)),
            flush_bytes=int(log(200, 10_000)),
            linger_ms=log(1, 250),
            flush_when_idle=draw.random() < 0.5,
            puts_in_flight_max=draw.randint(1, 4),
            bytes_max=int(log(1_000, 100_000)),
            deadline_ms=int(log(500, 6_000)),
            retry_pause_ms=int(log(5, 50)),
            retry_pause_max_ms=int(log(50, 500)),
        ),
        reader=ReaderSettings(bytes_max=int(log(500, 100_000)), slices_per_lookup=int(log(1, 64))),
        cache=CacheSettings(bytes_max=int(log(1_000, 1_000_000)), slice_fraction_min=draw.random()),
        follower=FollowerSettings(
            page_entry_count=int(log(1, 200)), wait_ms=int(log(50, 1_000)), retry_pause_ms=int(log(10, 200))
        ),
        upkeep=UpkeepSettings(pause_ms=int(log(100, 2_000)), entry_count_min=int(log(2, 200))),
        tail_slice_count_max=int(log(2, 1_000)),
    )
    metadata = SqliteSettings(
        partition_count_cached_max=int(log(1, 50)),
        page_slice_count_max=int(log(1, 64)),
        roll_entry_count_max=int(log(1, 100)),
        roll_slice_count_max=int(log(1, 200)),
        unrolled_entry_count_max=int(log(5, 200)),
        sweep_page_count_max=int(log(1, 50)),
        token_result_keep_ms=int(log(500, 600_000)),
    )
    network = NetworkSettings(
        delay_ms=log(0.2, 20),
        slow_rate=often(log(0.001, 0.05)),
        refused_rate=often(log(0.001, 0.1)),
        lost_request_rate=often(log(0.001, 0.05)),
        lost_reply_rate=often(log(0.001, 0.1)),
    )
    later = random.Random(f"{seed} settings that came later")
    streams = replace(
        streams,
        reader=replace(streams.reader, load_bytes_max=int(200 * 500 ** later.random())),
        cache=replace(streams.cache, loading_bytes_max=int(200 * 500 ** later.random())),
        history=HistorySettings(files=DataFileSettings(thread_count=0)),
        writer=replace(streams.writer, gather_ms=later.choice([0.0, 0.5, 20.0])),
    )
    last = random.Random(f"{seed} settings that came last")
    network = replace(network, doomed_put_rate=last.choice([0.0, 0.02, 0.2]))
    newest = random.Random(f"{seed} settings that came after the last")
    network = replace(network, has_stores_here=newest.random() < 0.4)
    inferring_count = last.randint(0, 2)
    stamped = {"message.timestamp.type": "LogAppendTime"}
    streams_of = {
        f"stream-{number}": (draw.randint(1, 3), stamped if draw.random() < 0.3 else {})
        for number in range(draw.randint(1, 3))
    }
    return ScenarioSettings(
        streams=streams,
        retries=RetrySettings(attempt_count_max=draw.randint(1, 5), pause_first_ms=20, deadline_ms=1_500),
        metadata=metadata,
        network=network,
        streams_of=streams_of,
        server_count=draw.randint(1, 3),
        duration_s=log(2, 10),
        idempotent_count=draw.randint(1, 2),
        inferring_count=inferring_count,
        plain_count=draw.randint(0, 2),
        named_count=later.randint(0, 2),
        conditional_count=later.randint(0, 1),
        consumer_count=draw.randint(1, 2),
        produce_pause_s=log(0.02, 0.3),
        consume_pause_s=log(0.02, 0.3),
        chaos_pause_s=log(0.2, 2),
        admin_pause_s=log(0.1, 1),
        chaos_weights=[0.05 + often(1) for _ in range(7)],
        admin_weights=[0.01 + often(1), often(0.3), often(0.3), often(0.3), 1, 0],
    )


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of one seed."""

    seed: int
    step_count: int = 0
    call_count: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    acks: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None
    trace: Sequence[tuple[float, str, str, dict[str, object]]] = ()


def run_seed(seed: int, settings: ScenarioSettings | None = None, **changes: Any) -> Report:
    """Run one seed; findings are in `Report.violation`, never raised. `changes` replace fields of the drawn settings."""
    drawn = replace(settings or draw_settings(seed), **changes)
    loop = SimulationLoop(random.Random(f"{seed} loop"))
    deployment = Deployment(seed, drawn, loop)
    report = Report(seed=seed)
    with LoggedErrors(deployment):
        try:
            loop.run(
                _run(deployment),
                time_max_s=TIME_MAX_S if drawn.members is None and drawn.months is None else float("inf"),
            )
            _check(deployment)
        except Violation as violation:
            report.violation = violation
        except Exception as error:  # noqa: BLE001 - whatever the code under test raises is a finding
            report.violation = Violation(f"unexpected {error!r}")
            report.violation.__cause__ = error
        report.step_count, report.virtual_s, report.trace = loop.step_count, loop.time(), list(deployment.trace_events)
        deployment.network.is_healthy = True
        loop.abort = None
        _close(deployment, report)
    report.call_count = deployment.network.call_count
    report.faults, report.acks, report.outcomes = deployment.network.faults, deployment.acks, deployment.truth.outcomes
    report.events = deployment.events + Counter(
        {
            "fetch": deployment.fetch_count,
            "view read": deployment.read_count,
            "out of range": deployment.out_of_range_count,
            "unknown outcome": deployment.unknown_count,
            "given up by producers": deployment.given_up_count,
            "server fenced": deployment.fenced_count,
            "socket not read": deployment.backpressure_count,
        }
    )
    return report


def _check(deployment: Deployment) -> None:
    """Check the promises against the clients' history alone. Raises `Violation`."""
    if deployment.settings.transactional is not None:
        deployment.transaction_history.check()
        deployment.events.update(deployment.transaction_history.counts())
        if isinstance(deployment.loop.abort, Violation):
            raise deployment.loop.abort
        return
    verdict = deployment.client_history.verdict()
    deployment.events["operations checked"] += verdict.counts["operations"]
    if verdict.violations:
        raise Violation(f"history: {verdict.violations[0]}")


def _close(deployment: Deployment, report: Report) -> None:
    """Close everything; a task error that was never retrieved is also a finding."""
    loop = deployment.loop
    loop.close()
    asyncio.run(deployment.close())
    if report.violation is None and loop.failures:
        report.violation = Violation(f"unhandled: {loop.failures[0]}")


async def _run(deployment: Deployment) -> None:
    await deployment.open()
    settings = deployment.settings
    chaos = Chaos(deployment)
    for number in range(settings.server_count):
        deployment.start_node(f"server-{number}")
    keeper = asyncio.create_task(chaos.keep_serving())
    admin = Admin(deployment)
    await run_in(admin.process, deployment.loop, admin.create_all())
    producers = _producers(deployment)
    consumers = [Consumer(deployment, number) for number in range(settings.consumer_count)]
    producing = [_start(deployment, client) for client in producers]
    consuming = [_start(deployment, client) for client in consumers]
    subscribing = subscribers.start(deployment) + share_members.start(deployment)
    if deployment.members is not None:
        deployment.members.start()
    troubles = [
        asyncio.create_task(chaos.run()),
        _start(deployment, admin),
        asyncio.create_task(_watch(deployment)),
    ]
    if deployment.lake is None:
        troubles.append(asyncio.create_task(sweep(deployment)))
    else:
        deployment.lake.start()
        troubles.append(asyncio.create_task(query(deployment)))
    if settings.months is None:
        await asyncio.sleep(settings.duration_s)
    else:
        await Months(deployment, settings.months).run()
    deployment.trace("heals")
    deployment.is_producing = False
    deployment.network.is_healthy = True
    for task in troubles:
        task.cancel()
    for node in [*deployment.zombies, *deployment.nodes.values()]:
        if not node.is_gone:
            deployment.loop.resume(node.process)
    if deployment.lake is not None:
        deployment.lake.heal()
    await _finished(producing, "producers")
    if subscribing:
        await asyncio.sleep(ARRIVAL_DEADLINES * settings.network.deadline_ms / 1000)
    deployment.can_more_be_stored = False
    await _finished(subscribing, "subscribers")
    if deployment.lake is not None:
        await asyncio.sleep(READ_ON_S)
    if deployment.members is not None:
        await deployment.members.wait_until_stable()
    deployment.is_consuming = False
    await _finished(consuming, "consumers")
    if deployment.lake is not None:
        await deployment.lake.wait_until_done()
        for stream in deployment.truth.active():
            read_rows(deployment, stream)
    await check_end(deployment)
    if deployment.subscription_truth is not None:
        deployment.subscription_truth.check_end()
    if deployment.share_truth is not None and settings.shares is not None:
        deployment.share_truth.check_end(settings.shares.groups)
    keeper.cancel()


def _start(deployment: Deployment, client: Client) -> "asyncio.Task[Any]":
    run: Any = client.run  # type: ignore[attr-defined]
    return run_in(client.process, deployment.loop, run())


def _producers(deployment: Deployment) -> list[Client]:
    draw = deployment.randomness("lanes")
    lanes = [(name, index) for name, (count, _) in deployment.settings.streams_of.items() for index in range(count)]

    def sample() -> list[tuple[str, int]]:
        return draw.sample(lanes, draw.randint(1, min(3, len(lanes))))

    settings = deployment.settings
    transactional = settings.transactional
    count = 0 if transactional is None else transactional.producer_count
    return [
        *(IdempotentProducer(deployment, number, sample()) for number in range(settings.idempotent_count)),
        *(InferringProducer(deployment, number, sample()) for number in range(settings.inferring_count)),
        *(PlainProducer(deployment, number, sample()) for number in range(settings.plain_count)),
        *(NamedClient(deployment, number, sample()) for number in range(settings.named_count)),
        *(ConditionalProducer(deployment, number, sample()) for number in range(settings.conditional_count)),
        *(
            TransactionalProducer(deployment, number, sample(), transactional)
            for number in range(count)
            if transactional
        ),
    ]


async def _watch(deployment: Deployment) -> None:
    """Check the memory bounds of all servers periodically."""
    while True:
        await asyncio.sleep(0.1)
        for node in deployment.serving():
            node.check_bounds()


async def _finished(tasks: Sequence["asyncio.Task[Any]"], who: str) -> None:
    _, waiting = await asyncio.wait(tasks, timeout=FINISH_S) if tasks else ((), ())
    if waiting:
        raise Violation(f"{who} are not done {FINISH_S} s after everything was healed")
    for task in tasks:
        task.result()
