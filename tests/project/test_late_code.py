"""Code that is loaded with the first request that needs it: all of it can be loaded, in a thread, while the event loop goes on."""

import asyncio
import threading

import pytest

from bearlake.cli.commands import all_commands
from bearlake.late import Late
from bearlake.protocols.kafka import apis, dispatch
from bearlake.serving.admin import server as admin
from bearlake.streams import checking, on_demand

LATE = {
    "groups of Kafka clients": dispatch.GROUPS,
    "producers with ids": dispatch.PRODUCERS,
    "share groups": dispatch.SHARE_GROUPS,
    "streams groups": dispatch.STREAMS_GROUPS,
    "administration": dispatch.ADMINISTRATION,
    "group service": on_demand.GROUPS,
    "subscriptions": on_demand.SUBSCRIPTIONS,
    "validation": checking.VALIDATOR,
    "metrics": admin.EXPOSITION,
}


@pytest.mark.parametrize("what", LATE)
def test_what_is_loaded_late_can_be_loaded(what: str) -> None:
    assert LATE[what].now()


def test_every_kafka_api_has_a_handler() -> None:
    missing = [
        api.key.name
        for api in apis.APIS
        if api.key not in dispatch.HANDLERS and api.key not in dispatch.family_of(api.key).now()
    ]

    assert missing == []


def test_every_command_can_be_loaded_and_has_its_name() -> None:
    commands = all_commands()

    assert {name: command.name for name, command in commands.items()} == {name: name for name in commands}


async def test_the_event_loop_goes_on_while_code_is_loaded() -> None:
    has_run = threading.Event()

    def load() -> bool:
        return has_run.wait(30)

    late = Late(load)
    loading = asyncio.create_task(late.get())
    await asyncio.sleep(0)
    has_run.set()  # the loop runs, although the code is not loaded yet

    assert await loading


async def test_code_is_loaded_once() -> None:
    loads: list[int] = []
    late = Late(lambda: loads.append(1))

    await late.get()
    await late.get()
    late.now()

    assert loads == [1]


async def test_code_that_could_not_be_loaded_is_loaded_at_the_next_request() -> None:
    outcomes = iter([ImportError("no memory"), "loaded"])

    def load() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, ImportError):
            raise outcome
        return outcome

    late = Late(load)
    with pytest.raises(ImportError):
        await late.get()

    assert await late.get() == "loaded"
