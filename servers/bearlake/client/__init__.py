"""Python client for bearlake.stream.v1: write and read streams.

    with Client("localhost:50051") as client:
        client.create_stream("greetings", partition_count=4)
        with client.producer() as producer:
            producer.send("greetings", b"hello", key=b"you")
        for record in client.read("greetings", follow=False):
            print(record.partition, record.offset, record.value)
        with client.consumer("readers", "greetings") as consumer:
            for record in consumer:
                print(record.partition, record.offset, record.value)

`AsyncClient` offers the same methods for asyncio. Install the `grpc-client` extra to use this package.
"""

from bearlake.client.asynchronous import AsyncClient
from bearlake.client.connections import ClientSettings, Tls
from bearlake.client.consumer import AsyncConsumer, ConsumerOptions
from bearlake.client.errors import (
    AlreadyExists,
    CallFailed,
    Denied,
    InvalidArgument,
    NotFound,
    OutOfRange,
    Overloaded,
    Refused,
    TimedOut,
    Unavailable,
)
from bearlake.client.login import Password, Token
from bearlake.client.records import ArrowRecords, Record, Start, StreamDescription
from bearlake.client.synchronous import Client, Consumer

__all__ = [
    "AlreadyExists",
    "ArrowRecords",
    "AsyncClient",
    "AsyncConsumer",
    "CallFailed",
    "Client",
    "ClientSettings",
    "Consumer",
    "ConsumerOptions",
    "Denied",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "Overloaded",
    "Password",
    "Record",
    "Refused",
    "Start",
    "StreamDescription",
    "TimedOut",
    "Tls",
    "Token",
    "Unavailable",
]
