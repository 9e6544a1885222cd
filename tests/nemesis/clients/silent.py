# ruff: noqa: SLF001 - aiokafka has no public way to disable commits
"""Group members that never commit, with aiokafka. The history has each heartbeat and its answer.

A coordinator that has lost its group notices this when it writes, so only members that never commit show whether it also notices without
a write.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError

from nemesis.recording import Recording, now
from nemesis.script import STREAM, Script

GROUP = "silent"
SESSION_MS = 6_000
HEARTBEAT_MS = 500
RESIDENT_COUNT = 2
RESIDENT_S = (60.0, 300.0)
GUEST_S = 20.0
ABSENT_S = (15.0, 40.0)


def be_silent_member(script: Script) -> None:
    """Join and read, but never commit. The first two members stay for minutes; others come and go, perhaps through another server."""
    recorder = _MembershipRecorder(script.history)
    recorder.attach()
    is_guest = int(script.name.rpartition("-")[2]) > RESIDENT_COUNT
    with asyncio.Runner() as runner:
        while script.is_running:
            try:
                if is_guest:
                    script.sleep(script.random.uniform(*ABSENT_S))
                runner.run(_member(script, recorder, GUEST_S if is_guest else script.random.uniform(*RESIDENT_S)))
            # aiokafka's stop() may raise the CancelledError of a fetch that aiokafka itself cancelled.
            except (KafkaError, OSError, TimeoutError, asyncio.CancelledError) as error:
                script.history.note(f"member {type(error).__name__}")
                script.pause(1.0)


async def _member(script: Script, recorder: "_MembershipRecorder", seconds: float) -> None:
    consumer = AIOKafkaConsumer(
        STREAM, bootstrap_servers=script.addresses("kafka"), group_id=GROUP, client_id=script.life,
        enable_auto_commit=False, auto_offset_reset="latest", session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS, request_timeout_ms=8_000, metadata_max_age_ms=10_000,
    )  # fmt: skip
    end_s = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(60):
            await consumer.start()
        while script.is_running and asyncio.get_running_loop().time() < end_s:
            await consumer.getmany(timeout_ms=300, max_records=500)
    finally:
        recorder.give_up()
        try:
            async with asyncio.timeout(20):
                await consumer.stop()
        finally:
            recorder.give_up()  # an assignment that arrived while the consumer stopped


class _MembershipRecorder:
    """Records what a member's coordinator confirms, from the requests and answers of the library's group code."""

    def __init__(self, history: Recording) -> None:
        self._history = history
        self._asked = now()
        self._held: int | None = None

    def attach(self) -> None:
        """Observe the library's requests from now on; this process has one member at a time."""
        send, joined, prepare = (
            GroupCoordinator._send_req,
            GroupCoordinator._on_join_complete,
            GroupCoordinator._on_join_prepare,
        )
        recorder = self

        async def seen_send(coordinator: Any, request: Any) -> Any:
            name = type(request).__name__
            if name.startswith("SyncGroup"):
                recorder._asked = now()
            if name.startswith("LeaveGroup"):
                recorder.give_up()
            if not name.startswith("Heartbeat"):
                return await send(coordinator, request)
            return await recorder.confirm(coordinator, lambda: send(coordinator, request))

        async def seen_joined(coordinator: Any, generation: int, member_id: str, *rest: Any) -> None:
            await joined(coordinator, generation, member_id, *rest)
            recorder.hold(coordinator, generation, member_id)

        async def seen_prepare(coordinator: Any, *rest: Any) -> Any:
            recorder.give_up()
            return await prepare(coordinator, *rest)

        GroupCoordinator._send_req = seen_send
        GroupCoordinator._on_join_complete = seen_joined
        GroupCoordinator._on_join_prepare = seen_prepare

    async def confirm(self, coordinator: Any, send: Any) -> Any:
        """Send and record one heartbeat."""
        operation = self._history.invoke(
            "confirm", group=GROUP, member=coordinator.member_id, generation=coordinator.generation
        )
        try:
            answer = await send()
        except KafkaError as error:
            self._history.unknown(operation, type(error).__name__)
            raise
        if answer.error_code == 0:
            self._history.ok(operation)
        else:
            self._history.fail(operation, f"error {answer.error_code}")
        return answer

    def hold(self, coordinator: Any, generation: int, member_id: str) -> None:
        """Record that the member has received its assignment."""
        self.give_up()
        assigned = coordinator._subscription.subscription.assignment
        parts = [(part.topic, part.partition) for part in sorted(assigned.tps)] if assigned else []
        self._held = self._history.invoke(
            "hold", group=GROUP, member=member_id, generation=generation, partitions=parts, asked=self._asked,
            patience=SESSION_MS * 1_000_000,
        )  # fmt: skip

    def give_up(self) -> None:
        """Record that the member no longer reads its assignment."""
        held, self._held = self._held, None
        if held is not None:
            self._history.ok(held)
