"""Single batches, each with its own answer: Produce calls, repeated with the same sequence where that is needed."""

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
    """One partition: its appends come one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    producer: pb.InitProducerResponse | None = None
    sequence: int = 0


class Appender:
    """Appends batches, each once, however often it has to be sent. Used from one event loop only."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lanes: dict[Place, _Lane] = {}

    async def append(self, request: pb.ProduceRequest) -> int:
        """The offset of the batch's first record. Fills in the sequence. Raises `CallFailed`."""
        lane = self._lanes.setdefault((request.stream, request.partition), _Lane())
        async with lane.lock:
            try:
                return await self._append(lane, request)
            except (
                Refused
            ) as refusal:  # the servers have forgotten the producer: surely not stored, and the lane has none now
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
            if is_unknown:  # whether the sequence is used up: the next batch is a new producer's
                lane.producer = None
        return answer.base_offset
