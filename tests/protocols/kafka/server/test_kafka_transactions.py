"""Transactions on the wire: both generations of the protocol, on any server of a cluster; what readers of committed records see.

KIP-98, KIP-360, KIP-447, KIP-664, KIP-890; decisions 130 and 131.
"""

import asyncio
from dataclasses import replace

import pytest

from bearlake.errors import Unavailable
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.kafka_server import batch_of, fetch_request, produce_request, values_of
from fixtures.late_follower import delay, wait_for_question
from fixtures.waiting import until

m = messages


class Producer:
    """A transactional producer of raw requests. V2 is KIP-890."""

    def __init__(self, client, name="copier", *, is_v2=True):
        self.client, self.name, self.is_v2 = client, name, is_v2
        self.id = self.epoch = -1
        self.sequences = {}

    @property
    def who(self):
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    async def init(self, **fields):
        request = m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000, **fields)
        answer = await self.client.ask(request, 5)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer.error_code

    async def add(self, topic="t", *indexes):
        given = {
            **self.who,
            "topics": [m.AddPartitionsToTxnRequest.Topic(name=topic, partitions=list(indexes or (0,)))],
        }
        answer = await self.client.ask(
            m.AddPartitionsToTxnRequest(**{f"v3_and_below_{name}": value for name, value in given.items()}), 3
        )
        (topic,) = answer.results_by_topic_v3_and_below
        return {item.partition_error_code for item in topic.results_by_partition}

    async def send(self, *values, topic="t", index=0):
        sequence = self.sequences.get((topic, index), 0)
        batch = batch_of(*values, producer=(self.id, self.epoch, sequence), is_transactional=True)
        request = produce_request(topic, batch, index=index, transactional_id=self.name)
        answer = await self.client.ask(request, 12 if self.is_v2 else 11)
        (found,) = answer.responses[0].partition_responses
        if not found.error_code:
            self.sequences[topic, index] = sequence + len(values)
        return found.error_code

    async def end(self, *, is_commit=True):
        answer = await self.client.ask(m.EndTxnRequest(**self.who, committed=is_commit), 5 if self.is_v2 else 4)
        if self.is_v2 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer.error_code


async def read(client, *, topic="t", index=0, is_committed=True, wait_ms=0):
    """Last stable offset, and the values that a consumer sees."""
    request = fetch_request([(topic, index, 0)], wait_ms=wait_ms, bytes_min=1 if wait_ms else 0)
    request.isolation_level = int(is_committed)
    answer = await client.ask(request, 11)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 0
    values = [value for _, value in values_of(partition.records) if value is None or not value.startswith(b"\0\0\0\0")]
    return partition.last_stable_offset, values  # without the values of markers


@pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])
async def test_records_appear_when_their_transaction_commits(kafka, is_v2):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client, is_v2=is_v2)
    assert await producer.init() == 0
    if not is_v2:
        assert await producer.add() == {0}
    assert await producer.send(b"a", b"b") == 0
    before = await read(client), await read(client, is_committed=False)
    assert await producer.end() == 0

    assert before == ((0, []), (2, [b"a", b"b"]))
    assert await read(client) == (3, [b"a", b"b"])


@pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])
async def test_records_of_an_aborted_transaction_never_appear(kafka, is_v2):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client, is_v2=is_v2)
    await producer.init()
    for value, is_commit in ((b"a", False), (b"b", True), (b"c", False), (b"d", True)):
        if not is_v2:
            await producer.add()
        assert await producer.send(value) == 0
        await client.produce("t", batch_of(b"plain"))
        assert await producer.end(is_commit=is_commit) == 0

    plain = b"plain"
    assert await read(client) == (12, [plain, b"b", plain, plain, b"d", plain])
    assert (await read(client, is_committed=False))[1] == [b"a", plain, b"b", plain, b"c", plain, b"d", plain]


async def test_a_consumer_of_committed_records_waits_for_the_end(kafka):
    client, reader = await kafka.client(), await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    await producer.send(b"a")
    waiting = asyncio.ensure_future(read(reader, wait_ms=60_000))
    await producer.send(b"b")
    is_waiting = not waiting.done()
    await producer.end()

    assert is_waiting
    assert (await waiting)[1] == [b"a", b"b"]


async def test_a_fetch_without_a_wait_sees_a_transaction_whose_end_is_acknowledged(kafka):
    await kafka.create("t")
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()
    await producer.send(b"a", b"b")
    assert (await read(await kafka.client(), is_committed=False))[1] == [b"a", b"b"]
    log = delay(kafka.streams)
    assert await producer.end() == 0

    reading = asyncio.create_task(read(await kafka.client()))
    await wait_for_question(kafka.streams)
    log.opened.set()

    assert await reading == (3, [b"a", b"b"])


async def test_any_server_serves_any_step(kafka_cluster):
    cluster = await kafka_cluster(3)
    await cluster[0].create("t", 2)
    clients = [await node.client() for node in cluster.nodes]
    for node in cluster.nodes:
        await node.streams.catalog.find("t")
    producer = Producer(clients[0], is_v2=False)
    await producer.init()
    producer.client = clients[1]
    assert await producer.add("t", 0, 1) == {0}
    producer.client = clients[2]
    assert await producer.send(b"a") == 0
    producer.client = clients[0]
    assert await producer.send(b"b", index=1) == 0
    producer.client = clients[1]
    assert await producer.end() == 0

    for client in clients:
        for index, value in ((0, b"a"), (1, b"b")):
            assert (await read(client, index=index, wait_ms=60_000))[1] == [value]


async def test_an_open_transaction_of_another_server_hides_its_records(kafka_cluster):
    cluster = await kafka_cluster(2)
    await cluster[0].create("t")
    await cluster[1].streams.catalog.find("t")
    writer, reader = [await node.client() for node in cluster.nodes]
    await writer.produce("t", batch_of(b"plain"))
    await cluster[1].streams.catalog.catch_up()
    await read(reader, wait_ms=60_000)
    producer = Producer(writer)
    await producer.init()
    await producer.send(b"a")
    while len((await read(reader, is_committed=False))[1]) < 2:
        pass  # the other server follows the log

    assert await read(reader) == (1, [b"plain"])


async def test_a_new_producer_fences_the_former_one_and_aborts_its_transaction(kafka):
    client = await kafka.client()
    await kafka.create("t")
    old, new = Producer(client), Producer(client)
    await old.init()
    await old.send(b"a")
    assert await new.init() == 0
    late = await old.send(b"late"), await old.end(), await old.add()
    await new.send(b"b")
    await new.end()

    assert (new.id, new.epoch) == (old.id, old.epoch + 2)  # by its initialization, and by its end
    assert late == (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, {ErrorCode.PRODUCER_FENCED})
    assert (await read(client))[1] == [b"b"]


async def test_a_batch_that_comes_after_the_end_is_refused(kafka):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client, is_v2=False)
    await producer.init()
    await producer.add()
    await producer.send(b"a")
    await producer.end()

    assert await producer.send(b"late") == ErrorCode.INVALID_TXN_STATE
    assert await read(client) == (2, [b"a"])


@pytest.mark.parametrize(
    ("is_v2", "code"),
    [(False, ErrorCode.INVALID_TXN_STATE), (True, ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
    ids=["v1", "v2"],
)
async def test_a_batch_of_an_unknown_producer_is_refused(kafka, is_v2, code):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client, is_v2=is_v2)
    producer.id, producer.epoch = 77, 0

    assert await producer.send(b"a") == code


@pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])
async def test_a_batch_with_the_producer_id_of_another_transactional_id_is_refused(kafka_cluster, is_v2):
    """The caller has rights to the transactional id that the request names, and perhaps none to that of the producer id."""
    cluster = await kafka_cluster(2)
    await cluster[0].create("t")
    await cluster[1].streams.catalog.find("t")
    clients = [await node.client() for node in cluster.nodes]
    victim = Producer(clients[0], "victim", is_v2=is_v2)
    await victim.init()
    if not is_v2:
        await victim.add()
    assert await victim.send(b"a") == 0
    codes = []
    for client in clients:  # the second server has not heard of the victim
        intruder = Producer(client, "intruder", is_v2=is_v2)
        await intruder.init()
        intruder.id, intruder.epoch = victim.id, victim.epoch
        intruder.sequences = dict(victim.sequences)
        codes.append(await intruder.send(b"intruded"))
    assert await victim.send(b"b") == 0
    await victim.end()

    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert (await read(clients[0]))[1] == [b"a", b"b"]


async def test_a_server_that_cannot_look_a_producer_id_up_lets_the_client_retry(kafka, monkeypatch):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    transactions = kafka.streams.transactions
    monkeypatch.setattr(transactions, "_owners", {})

    async def owners(_):
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(kafka.streams.metadata.transactions, "owners", owners)
        refused = await producer.send(b"a")

    assert refused == ErrorCode.LEADER_NOT_AVAILABLE
    assert await producer.send(b"a") == 0


async def test_an_end_whose_answer_was_lost_can_be_repeated(kafka):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    await producer.send(b"a")
    request = m.EndTxnRequest(**producer.who, committed=True)
    first, again = await client.ask(request, 5), await client.ask(request, 5)
    other = await client.ask(m.EndTxnRequest(**producer.who, committed=False), 5)

    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, producer.id, producer.epoch + 1)
    assert again == first
    assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert await read(client) == (2, [b"a"])


async def test_the_latest_offset_of_committed_records_is_the_last_stable_one(kafka):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    await client.produce("t", batch_of(b"plain"))
    await producer.send(b"a", b"b")
    r = m.ListOffsetsRequest
    found = []
    for isolation in (0, 1):
        partition = r.Partition(partition_index=0, timestamp=-1)
        topics = [r.Topic(name="t", partitions=[partition])]
        answer = await client.ask(r(replica_id=-1, isolation_level=isolation, topics=topics), 6)
        found.append(answer.topics[0].partitions[0].offset)

    assert found == [3, 1]


async def offsets_of(client, *, requires_stable):
    r = m.OffsetFetchRequest
    request = r(group_id="g", topics=[r.Topic(name="t", partition_indexes=[0])], require_stable=requires_stable)
    (found,) = (await client.ask(request, 7)).topics[0].partitions
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
async def test_offsets_of_a_group_take_effect_with_the_transaction(kafka, is_commit):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    r = m.TxnOffsetCommitRequest
    topics = [r.Topic(name="t", partitions=[r.Partition(partition_index=0, committed_offset=7)])]
    kept = await client.ask(r(**producer.who, group_id="g", topics=topics, generation_id=-1, member_id=""), 5)
    during = [await offsets_of(client, requires_stable=requires) for requires in (False, True)]
    await producer.end(is_commit=is_commit)

    assert kept.topics[0].partitions[0].error_code == 0
    assert during == [(-1, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    assert await offsets_of(client, requires_stable=True) == (7 if is_commit else -1, 0)


@pytest.fixture
async def member(kafka):
    """The id and epoch of the only member of a group `g` of the consumer protocol (KIP-848), which has partition 0 of `t`."""
    client = await kafka.client()
    await kafka.create("t")
    r = m.ConsumerGroupHeartbeatRequest
    values = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = r(group_id="g", member_id="a", member_epoch=0, **values)
    answer = await client.ask(request, 1)
    while not (answer.assignment and answer.assignment.topic_partitions):
        answer = await client.ask(request, 1)
    return answer.member_id, answer.member_epoch


@pytest.mark.parametrize("version", [3, 4, 5, 6])
async def test_a_member_of_a_consumer_group_commits_offsets_in_its_transaction(kafka, member, version):
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()
    if version < 5:
        added = await client.ask(m.AddOffsetsToTxnRequest(**producer.who, group_id="g"), 3)
        assert added.error_code == 0
    topic_id = (await kafka.streams.catalog.find("t")).id_bytes
    code = await keep_offset(producer, *member, version=version, topic_id=topic_id)
    await producer.end()

    assert code == 0
    assert await offsets_of(client, requires_stable=True) == (7, 0)


async def test_a_client_without_a_member_id_commits_offsets_of_a_group_with_members(kafka, member):
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()

    assert await keep_offset(producer, "", -1) == 0


@pytest.mark.parametrize(("version", "stale"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)])
async def test_offsets_of_a_member_that_the_group_does_not_have_are_refused(kafka, member, version, stale):
    name, epoch = member
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()
    members = ("other", epoch), (name, epoch + 1), (name, epoch - 1)
    topic_id = (await kafka.streams.catalog.find("t")).id_bytes
    codes = [await keep_offset(producer, *who, version=version, topic_id=topic_id) for who in members]
    await producer.end(is_commit=False)

    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, stale, stale]
    assert await offsets_of(client, requires_stable=True) == (-1, 0)


async def keep_offset(producer, member_id, epoch, *, version=5, group="g", metadata=None, topic_id=bytes(16)):
    """Keep offset 7 for the group; returns the error code."""
    r = m.TxnOffsetCommitRequest
    partition = r.Partition(partition_index=0, committed_offset=7, committed_metadata=metadata)
    topics = [r.Topic(name="t", topic_id=topic_id, partitions=[partition])]
    request = r(**producer.who, group_id=group, topics=topics, generation_id=epoch, member_id=member_id)
    return (await producer.client.ask(request, version)).topics[0].partitions[0].error_code


async def test_an_offset_for_a_topic_id_that_does_not_exist_is_refused(kafka, member):
    producer = Producer(await kafka.client())
    await producer.init()

    assert await keep_offset(producer, "", -1, version=6, topic_id=b"x" * 16) == ErrorCode.UNKNOWN_TOPIC_ID


async def test_offsets_that_are_all_refused_begin_no_transaction(kafka):
    """Its producer would not know of the transaction, and would be fenced when it takes too long."""
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()
    code = await keep_offset(producer, "", -1)  # the topic does not exist
    described = await client.ask(m.DescribeTransactionsRequest(transactional_ids=["copier"]), 0)

    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described.transaction_states[0].transaction_state == "Empty"


async def test_a_pattern_that_is_not_re2_is_refused(kafka):
    client = await kafka.client()
    answer = await client.ask(m.ListTransactionsRequest(transactional_id_pattern="(a)\\1"), 2)

    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(kafka):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    request = m.InitProducerIdRequest(transactional_id=producer.name, transaction_timeout_ms=1)
    made = await client.ask(request, 5)
    producer.id, producer.epoch = made.producer_id, made.producer_epoch
    await producer.send(b"a")
    transactions = kafka.streams.transactions
    while [page async for page in transactions.pages(is_ongoing=True)]:
        await transactions.expire()

    assert await producer.end() == ErrorCode.PRODUCER_FENCED
    assert await read(client) == (2, [])


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 1_025], ids=["empty", "nul", "long"])
async def test_names_that_no_store_keeps_are_refused(kafka, name):
    client = await kafka.client()
    await kafka.create("t")
    producer = Producer(client)
    await producer.init()
    answer = await client.ask(m.AddOffsetsToTxnRequest(**producer.who, group_id=name or "\0"), 3)

    assert await Producer(client, name).init() == ErrorCode.INVALID_REQUEST
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert await keep_offset(producer, "", -1, group=name or "\0") == ErrorCode.INVALID_GROUP_ID
    assert await keep_offset(producer, "", -1, metadata="a\0b") == ErrorCode.INVALID_REQUEST


async def test_a_transaction_has_a_limit_of_groups(kafka):
    client = await kafka.client()
    producer = Producer(client)
    await producer.init()
    transactions = kafka.streams.transactions
    transactions.settings = replace(transactions.settings, group_count_max=2)
    requests = [m.AddOffsetsToTxnRequest(**producer.who, group_id=group) for group in ("a", "b", "a", "c")]
    codes = [(await client.ask(request, 3)).error_code for request in requests]

    assert codes == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert await producer.end() == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_timeout_out_of_range_is_refused(kafka, timeout_ms):
    client = await kafka.client()
    request = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)

    assert (await client.ask(request, 5)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_an_administrator_sees_and_aborts_a_hanging_transaction(kafka):
    client = await kafka.client()
    await kafka.create("t", 2)
    producer = Producer(client)
    await producer.init()
    await producer.send(b"a", index=1)
    described = await client.ask(m.DescribeTransactionsRequest(transactional_ids=["copier", "none"]), 0)
    listed = await client.ask(m.ListTransactionsRequest(state_filters=["Ongoing"], transactional_id_pattern="cop.*"), 2)
    producers = await client.ask(
        m.DescribeProducersRequest(topics=[m.DescribeProducersRequest.Topic(name="t", partition_indexes=[1])]), 0
    )
    r = m.WriteTxnMarkersRequest
    topics = [r.Topic(name="t", partition_indexes=[1])]
    marker = r.Marker(producer_id=producer.id, producer_epoch=producer.epoch, transaction_result=False, topics=topics)
    written = await client.ask(r(markers=[marker]), 1)

    found, unknown = described.transaction_states
    assert (found.transaction_state, found.topics[0].topic, found.topics[0].partitions) == ("Ongoing", "t", [1])
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert [item.transactional_id for item in listed.transaction_states] == ["copier"]
    assert producers.topics[0].partitions[0].active_producers[0].current_txn_start_offset == 0
    assert written.markers[0].topics[0].partitions[0].error_code == 0
    assert await read(client, index=1) == (2, [])
    assert await producer.end() == ErrorCode.PRODUCER_FENCED


async def test_every_server_names_the_same_coordinator(kafka_cluster):
    cluster = await kafka_cluster(3)
    await until(lambda: all(len(node.member.live()) == 3 for node in cluster.nodes))
    request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b", "c"])
    found = []
    for node in cluster.nodes:
        answer = await (await node.client()).ask(request, 4)
        found.append([(item.error_code, item.node_id) for item in answer.coordinators])

    assert found[0] == found[1] == found[2]
    assert {code for code, _ in found[0]} == {0}
