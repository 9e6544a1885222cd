"""Rights of open producers and consumers: a change of the rules applies to them too."""

from typing import Any

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.logins import Logins
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.rights import EVERY, OnlyRights

SHARED = pb.CommandSubscribe.Shared


def without(operation: Operation) -> OnlyRights:
    """Allows everything but this operation on streams."""
    return OnlyRights([right for right in EVERY if right != (operation, Resource.STREAM)])


async def sent(client: PulsarClient, value: bytes, sequence_id: int) -> Any:
    client.send_message(value, sequence_id)
    return await client.receive()


async def test_a_producer_that_may_not_write_any_more_is_closed(pulsar: PulsarNode) -> None:
    await pulsar.create("t")
    client = await pulsar.client()
    await client.produce("t")
    assert isinstance(await sent(client, b"allowed", 0), pb.CommandSendReceipt)
    pulsar.streams.authorizer = without(Operation.WRITE)
    assert isinstance(await sent(client, b"denied", 1), pb.CommandCloseProducer)
    assert (await client.produce("t")).error == pb.AuthorizationError

    pulsar.streams.authorizer = OnlyRights(EVERY)
    await client.produce("t")
    assert (await sent(client, b"allowed again", 2)).message_id.entry_id == 1


async def test_a_consumer_that_may_not_read_any_more_gets_nothing_and_is_closed(pulsar: PulsarNode) -> None:
    await pulsar.create("t")
    writer, reader = await pulsar.client(), await pulsar.client()
    await writer.produce("t")
    assert isinstance(await reader.subscribe("t", sub_type=SHARED), pb.CommandSuccess)
    reader.flow(10)
    await sent(writer, b"before", 0)
    assert (await reader.receive_message())[2] == b"before"

    pulsar.streams.authorizer = without(Operation.READ)
    await sent(writer, b"secret", 1)
    assert isinstance(await reader.receive(), pb.CommandCloseConsumer)
    assert (await reader.subscribe("t", sub_type=SHARED)).error == pb.AuthorizationError

    pulsar.streams.authorizer = OnlyRights(EVERY)
    assert isinstance(await reader.subscribe("t", sub_type=SHARED), pb.CommandSuccess)
    reader.flow(10)
    assert [(await reader.receive_message())[2] for _ in range(2)] == [b"before", b"secret"]


class Without(Authorizer):
    """Denies one user to read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return operation is not Operation.READ or who.name != self._name


async def test_messages_that_one_user_may_not_read_go_to_another_user(pulsar_cluster: Make, logins: Logins) -> None:
    """The denied consumer does not hold up the subscription."""
    node = (await pulsar_cluster(1, authentication=logins.settings()))[0]
    await node.create("t")
    alice, bob = [
        await node.client(auth_method_name="token", auth_data=logins.token(sub=name).encode())
        for name in ("alice", "bob")
    ]
    await alice.produce("t")
    for client in (bob, alice):
        await client.subscribe("t", sub_type=SHARED)
    bob.flow(1)
    await sent(alice, b"unread", 0)
    assert (await bob.receive_message())[2] == b"unread"

    node.streams.authorizer = Without("bob")
    bob.flow(10)
    assert isinstance(await bob.receive(), pb.CommandCloseConsumer)
    alice.flow(10)
    assert (await alice.receive_message())[2] == b"unread"


async def test_a_producer_creates_no_subscription_without_the_right_to_read(pulsar: PulsarNode) -> None:
    await pulsar.create("t")
    pulsar.streams.authorizer = without(Operation.READ)
    writer = await pulsar.client()

    assert (await writer.produce("t", initial_subscription_name="planted")).error == pb.AuthorizationError
    assert isinstance(await writer.produce("t"), pb.CommandProducerSuccess)
