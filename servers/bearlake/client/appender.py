"""Appends single batches with Produce calls; retries use the same sequence number."""

import asyncio
from dataclasses import dataclass, field

from bearlake.client.connections import Connections
from bearlake.client.errors import UNKNOWN_PRODUCER, Refused
from bearlake.client.reader import Place
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

UNEXPECTED_OFFSET = "UNEXPECTED_OFFSET"
_SEQUENCE_END = 1 << 31


@dataclass(slots=True)
class _Lane:
    """The state of one partition, whose appends run one at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    producer: pb.InitProducerResponse | None = None
    sequence: int = 0


class Appender:
    """Appends each batch exactly once, however often it is sent. Use from a single event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lanes: dict[Place, _Lane] = {}

    async def append(self, request: pb.ProduceRequest) -> int:
        """Append the batch and return the offset of its first record. Fills in `request.sequence`. Raises `CallFailed`."""
        lane = self._lanes.setdefault((request.stream, request.partition), _Lane())
        async with lane.lock:
            try:
                return await self._append(lane, request)
            except Refused as refusal:
                # The servers have forgotten the producer, so the batch is not stored. `_append` has reset the producer.
                if refusal.reason != UNKNOWN_PRODUCER:
                    raise
            return await self._append(lane, request)

    async def _append(self, lane: _Lane, request: pb.ProduceRequest) -> int:
        if lane.producer is None:
            lane.producer = await self._connections.call(methods.INIT_PRODUCER, pb.InitProducerRequest())
            lane.sequence = 0
        request.sequence.producer_id = lane.producer.producer_id
        request.sequence.producer_epoch = lane.producer.producer_epoch
        request.sequence.base_sequence = lane.sequence
        is_unknown = True
        try:
            answer = await self._connections.call(methods.PRODUCE, request)
            lane.sequence = (lane.sequence + answer.record_count) % _SEQUENCE_END
            is_unknown = False
        except Refused as refusal:
            is_unknown = refusal.reason != UNEXPECTED_OFFSET
            raise
        finally:
            if is_unknown:  # the sequence may be used up, so the next batch needs a new producer
                lane.producer = None
        return answer.base_offset
