"""Table of all methods of bearlake.stream.v1, for server and client: path, message types, and whether the method streams."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from bearlake.protocols.grpc.proto import stream_pb2 as pb

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

PACKAGE = "bearlake.stream.v1"


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One method. `is_streaming` means that both sides stream; otherwise neither side streams."""

    service: str
    name: str
    request: type[Request]
    response: type[Response]
    is_streaming: bool = False

    @property
    def path(self) -> str:
        """The HTTP/2 path."""
        return f"/{self.service}/{self.name}"


ADMIN = f"{PACKAGE}.Admin"
PRODUCER = f"{PACKAGE}.Producer"
CONSUMER = f"{PACKAGE}.Consumer"
SERVICES = (ADMIN, PRODUCER, CONSUMER)

CREATE_STREAM = Method(ADMIN, "CreateStream", pb.CreateStreamRequest, pb.Stream)
DESCRIBE_STREAM = Method(ADMIN, "DescribeStream", pb.DescribeStreamRequest, pb.StreamDescription)
LIST_STREAMS = Method(ADMIN, "ListStreams", pb.ListStreamsRequest, pb.ListStreamsResponse)
DELETE_STREAM = Method(ADMIN, "DeleteStream", pb.DeleteStreamRequest, pb.DeleteStreamResponse)
INIT_PRODUCER = Method(PRODUCER, "InitProducer", pb.InitProducerRequest, pb.InitProducerResponse)
PRODUCE = Method(PRODUCER, "Produce", pb.ProduceRequest, pb.ProduceResponse)
PRODUCE_STREAM = Method(PRODUCER, "ProduceStream", pb.ProduceStreamRequest, pb.ProduceStreamResponse, is_streaming=True)
FETCH = Method(CONSUMER, "Fetch", pb.FetchRequest, pb.FetchResponse, is_streaming=True)
CONSUME = Method(CONSUMER, "Consume", pb.ConsumeRequest, pb.ConsumeResponse, is_streaming=True)
