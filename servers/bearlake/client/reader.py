"""The reader: one Fetch call, reopened at its position when its server stops or fails. Each record is returned once, in order."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from bearlake.client.connections import Connections, Pauses
from bearlake.client.errors import call_failed, failure_of_status
from bearlake.client.records import ArrowRecords, Record, from_message
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

Place = tuple[str, int]
"""(stream, partition)"""
Ends = Mapping[Place, int]


async def read(
    connections: Connections, positions: Sequence[pb.Position], ends: Ends | None
) -> AsyncGenerator[Record, None]:
    """Yield records from `positions` on; stop when all `ends` (offsets) are reached (None: never). Raises as `answers` does."""
    async with contextlib.aclosing(answers(connections, positions, ends, pb.FORM_RECORDS)) as found:
        async for answer in found:
            place = (answer.stream, answer.partition)
            end = None if ends is None else ends[place]
            for item in answer.payload.records.records:
                if end is None or item.offset < end:
                    yield from_message(item, *place)


async def read_arrow(
    connections: Connections, positions: Sequence[pb.Position], ends: Ends | None
) -> AsyncGenerator[ArrowRecords, None]:
    """Yield records as columns; the last batches may extend past `ends`. Raises as `answers` does."""
    schema = b""  # common to all batches; only the first answer carries the schema
    async with contextlib.aclosing(answers(connections, positions, ends, pb.FORM_ARROW)) as found:
        async for answer in found:
            if not answer.HasField("payload"):  # only a new position
                continue
            schema = answer.payload.arrow.schema or schema
            yield ArrowRecords(
                stream=answer.stream,
                partition=answer.partition,
                next_offset=answer.next_offset,
                content=schema + answer.payload.arrow.record_batch,
            )


async def answers(
    connections: Connections, positions: Sequence[pb.Position], ends: Ends | None, form: pb.Form
) -> AsyncGenerator[pb.FetchResponse, None]:
    """Yield answers from `positions` on; stop when all `ends` are reached (None: never).

    Raises:
        CallFailed: a partition cannot be read (any more), or no server was reached in time.
    """
    settings = connections.settings
    places = {(item.stream, item.partition): item for item in positions}
    pauses = Pauses(settings, settings.delivery_timeout_s)
    while places:
        channel = connections.channel()
        call = connections.open(channel, methods.FETCH)
        try:
            credit = pb.Credit(bytes=settings.read_bytes, messages=settings.read_messages)
            await call.write(pb.FetchRequest(form=form, assign=list(places.values()), credit=credit))
            while (answer := await call.read()) is not grpc.aio.EOF and not answer.HasField("drain"):
                pauses.reset()
                _advance(answer, places, ends)
                yield answer
                if not places:
                    return
                await send(call, pb.FetchRequest(credit=pb.Credit(bytes=answer.credit_bytes, messages=1)))
            connections.move_on(channel)
            await send(call, None)
        except grpc.aio.AioRpcError as error:
            failure = call_failed(error)
            if not failure.is_retriable:
                raise failure from error
            connections.move_on(channel)
            await pauses.wait(failure)
        finally:
            call.cancel()


def _advance(answer: pb.FetchResponse, places: dict[Place, pb.Position], ends: Ends | None) -> None:
    """Advance the position of the answer's partition, or drop the partition at its end. Raises the failure in the answer, if any."""
    place = (answer.stream, answer.partition)
    if answer.HasField("error"):
        raise failure_of_status(answer.error)
    if ends is not None and answer.next_offset >= ends[place]:
        places.pop(place, None)
    else:
        places[place] = pb.Position(stream=place[0], partition=place[1], offset=answer.next_offset)


async def send(call: Any, message: Message | None) -> None:  # grpc's calls are not typed by message
    """Send a message, or None to close our side. If the call has ended, the next read reports why."""
    with contextlib.suppress(asyncio.InvalidStateError):
        await (call.done_writing() if message is None else call.write(message))
