"""The reader: one Fetch call, opened again where it stopped when its server goes or fails. Every record comes once, in order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from bearlake.client.connections import Connections, Pauses
from bearlake.client.errors import call_failed, failure_of_status
from bearlake.client.records import Record, from_message
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

Place = tuple[str, int]


async def read(
    connections: Connections, positions: Sequence[pb.Position], ends: Mapping[Place, int] | None
) -> AsyncIterator[Record]:
    """Records from the positions on; ends when all `ends` (offsets by stream and partition) are reached, else never.

    Raises:
        CallFailed: a partition cannot be read (any more), or no server is reached in time.
    """
    settings = connections.settings
    places = {(item.stream, item.partition): item for item in positions}
    pauses = Pauses(settings, settings.delivery_timeout_s)
    while places:
        channel = connections.channel()
        call = connections.open(channel, methods.FETCH)
        try:
            credit = pb.Credit(bytes=settings.read_bytes, messages=settings.read_messages)
            await call.write(pb.FetchRequest(assign=list(places.values()), credit=credit))
            while (answer := await call.read()) is not grpc.aio.EOF and not answer.HasField("drain"):
                pauses.reset()
                for record in _take(answer, places, ends):
                    yield record
                if not places:
                    return
                await tell(call, pb.FetchRequest(credit=pb.Credit(bytes=answer.credit_bytes, messages=1)))
            connections.turn_away(channel)
            await tell(call, None)
        except grpc.aio.AioRpcError as error:
            failure = call_failed(error)
            if not failure.is_retriable:
                raise failure from error
            connections.turn_away(channel)
            await pauses.wait(failure)
        finally:
            call.cancel()


def _take(answer: pb.FetchResponse, places: dict[Place, pb.Position], ends: Mapping[Place, int] | None) -> list[Record]:
    """The answer's records up to the end that is wanted; notes where to go on."""
    place = (answer.stream, answer.partition)
    if answer.HasField("error"):
        raise failure_of_status(answer.error)
    end = None if ends is None else ends[place]
    records = [
        from_message(item, *place) for item in answer.payload.records.records if end is None or item.offset < end
    ]
    if end is not None and answer.next_offset >= end:
        places.pop(place, None)
    else:
        places[place] = pb.Position(stream=place[0], partition=place[1], offset=answer.next_offset)
    return records


async def tell(call: Any, message: Message | None) -> None:  # grpc's calls are not typed by message
    """Send a message, or None to close our side. When the call is over, reading from it says why."""
    with contextlib.suppress(asyncio.InvalidStateError):
        await (call.done_writing() if message is None else call.write(message))
