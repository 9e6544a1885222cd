"""How the nemesis's group members record a commit, given how librdkafka handles answers; with a real server."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bearlake.streams.groups.problems import GroupRefusal, Problem
from fixtures.kafka_server import Node, batch_of
from fixtures.waiting import until
from nemesis.clients import kafka as clients
from nemesis.recording import Recording
from nemesis.script import STREAM

Answer = Callable[[Any], Any]


class Script:
    """The parts of a client's script that a group member uses."""

    def __init__(self, folder: Path, address: str) -> None:
        self.history = Recording(folder / "member.jsonl", "member")
        self.life = "member"
        self.address = address

    def addresses(self, protocol: str) -> list[str]:
        return [self.address]


def outcomes(path: Path) -> list[str]:
    """Outcomes of the commits in the history, in order."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    commits = [event["i"] for event in events if event.get("op") == "commit"]
    return [event["e"] for event in events if event.get("i") in commits and event["e"] != "invoke"]


@pytest.mark.integration
async def test_a_refusal_is_definite_only_if_the_library_has_not_sent_the_commit_before(
    kafka: Node, tmp_path: Path
) -> None:
    """librdkafka repeats a commit that was answered COORDINATOR_NOT_AVAILABLE, and reports only the last answer."""
    await kafka.create(STREAM, 1)
    coordinator: Any = kafka.streams.coordinator
    real, asked = coordinator.commit, []

    async def losing(*given: Any, **named: Any) -> None:
        asked.append(given)
        if len(asked) != 1:
            raise GroupRefusal(Problem.UNKNOWN_MEMBER)
        await real(*given, **named)
        raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE)

    coordinator.commit = losing
    member = clients._Member(Script(tmp_path, kafka.address))  # type: ignore[arg-type]  # noqa: SLF001
    writer = await kafka.client()
    over = asyncio.Event()

    async def poll() -> None:
        while not over.is_set():
            await asyncio.to_thread(member.poll)

    polling = asyncio.create_task(poll())
    found = []
    try:
        for count in (1, 2):
            await writer.produce(STREAM, batch_of(b"%d" % count))
            await until(lambda: len(outcomes(tmp_path / "member.jsonl")) >= count)  # noqa: B023 - awaited at once
            found.append((len(asked), outcomes(tmp_path / "member.jsonl")[-1]))
    finally:
        over.set()
        await polling
        await asyncio.to_thread(member.close)

    assert found == [(2, "unknown"), (3, "fail")]
    committed = await coordinator.offsets(clients.GROUP)
    assert [value.offset for value in committed.values()] == [1]  # the first attempt took effect
