"""Every advertised API answers in every advertised version, with its codec's layout and plausible codes."""

import struct

import pytest

from bearlake.protocols.kafka import apis, codec, messages
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from fixtures.kafka_server import batch_of, fetch_request, key_of, produce_request

m = messages


def find_codes(message, found=None):
    """All error codes anywhere in a message."""
    found = [] if found is None else found
    for name in getattr(type(message), "__slots__", ()):
        value = getattr(message, name)
        if name == "error_code":
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(type(item), "__slots__") and not isinstance(item, bytes | str | int):
                find_codes(item, found)
    return found


def join_of(member_id="", group="g"):
    protocol = m.JoinGroupRequest.Protocol(name="range", metadata=b"\x00\x01")
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


class World:
    """A server with a stream `t` (two partitions, three records in the first), a member, a commit, a producer id."""

    async def open(self, kafka):
        self.kafka = kafka
        self.client = await kafka.client()
        self.topic_id = await kafka.create("t", 2)
        await self.client.produce("t", batch_of(b"a", b"b", b"c", producer=(5, 0, 0)))
        first = await self.client.ask(join_of(), 4)
        joined = await self.client.ask(join_of(first.member_id), 4)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        sync = m.SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[m.SyncGroupRequest.Assignment(member_id=self.member_id, assignment=b"\x00")],
        )
        await self.client.ask(sync, 3)
        await self.client.ask(self.commit(9), 9)
        return self

    def commit(self, version):
        r = m.OffsetCommitRequest
        partition = r.Partition(partition_index=0, committed_offset=2, committed_metadata="x")
        return r(
            group_id="g",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[r.Topic(name="t", topic_id=self.topic_id, partitions=[partition])],
        )

    def request(self, key, version):
        """A realistic request of that API and version, and the codes that its answer may have."""
        return getattr(self, key.name.lower())(version)

    def produce(self, version):
        topic = "t" if version < 13 else self.topic_id
        codes = {0} if version >= 3 else {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
        return produce_request(topic, batch_of(b"v")), codes

    def fetch(self, version):
        return fetch_request([("t" if version < 13 else self.topic_id, 0, 0)]), {0}

    def list_offsets(self, version):
        r = m.ListOffsetsRequest
        return r(
            replica_id=-1, topics=[r.Topic(name="t", partitions=[r.Partition(partition_index=0, timestamp=-1)])]
        ), {0}

    def metadata(self, version):
        topics = [m.MetadataRequest.Topic(name="t")]
        if version >= 12:
            topics.append(m.MetadataRequest.Topic(name=None, topic_id=self.topic_id))
        return m.MetadataRequest(topics=topics), {0}

    def offset_commit(self, version):
        return self.commit(version), {0}

    def offset_fetch(self, version):
        r = m.OffsetFetchRequest
        if version < 8:
            return r(group_id="g", topics=[r.Topic(name="t", partition_indexes=[0, 1])]), {0}
        topic = r.GroupTopic(name="t", topic_id=self.topic_id, partition_indexes=[0, 1])
        return r(groups=[r.Group(group_id="g", topics=[topic])]), {0}

    def find_coordinator(self, version):
        if version < 4:
            return m.FindCoordinatorRequest(key="g"), {0}
        return m.FindCoordinatorRequest(coordinator_keys=["g", "h"]), {0}

    def join_group(self, version):
        return join_of(group="new"), {0} if version < 4 else {ErrorCode.MEMBER_ID_REQUIRED}

    def heartbeat(self, version):
        r = m.HeartbeatRequest
        return r(group_id="g", generation_id=self.generation, member_id=self.member_id), {0}

    def leave_group(self, version):
        r = m.LeaveGroupRequest
        if version < 3:
            return r(group_id="g", member_id=self.member_id), {0}
        return r(group_id="g", members=[r.Member(member_id=self.member_id)]), {0}

    def sync_group(self, version):
        r = m.SyncGroupRequest
        return r(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
        ), {0}

    def describe_groups(self, version):
        missing = {0} if version < 6 else {0, ErrorCode.GROUP_ID_NOT_FOUND}
        return m.DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3), missing

    def list_groups(self, version):
        return m.ListGroupsRequest(), {0}

    def api_versions(self, version):
        return m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), {0}

    def create_topics(self, version):
        r = m.CreateTopicsRequest
        config = r.Config(name="retention.ms", value="1000")
        topic = r.Topic(name=f"new-{version}", num_partitions=2, replication_factor=1, configs=[config])
        return r(topics=[topic], timeout_ms=1000), {0}

    def delete_topics(self, version):
        r = m.DeleteTopicsRequest
        if version < 6:
            return r(topic_names=["t", "none"], timeout_ms=1000), {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return r(topics=[r.Topic(name=None, topic_id=self.topic_id)], timeout_ms=1000), {0}

    def delete_records(self, version):
        r = m.DeleteRecordsRequest
        return r(topics=[r.Topic(name="t", partitions=[r.Partition(partition_index=0, offset=1)])], timeout_ms=1000), {
            0
        }

    def init_producer_id(self, version):
        return m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), {0}

    def offset_for_leader_epoch(self, version):
        r = m.OffsetForLeaderEpochRequest
        return r(topics=[r.Topic(topic="t", partitions=[r.Partition(partition=0, leader_epoch=0)])]), {0}

    def describe_configs(self, version):
        r = m.DescribeConfigsRequest
        node = str(self.kafka.member.node_id)
        wanted = [r.Resource(resource_type=2, resource_name="t"), r.Resource(resource_type=4, resource_name=node)]
        return r(resources=wanted, include_synonyms=True, include_documentation=True), {0}

    def alter_configs(self, version):
        r = m.AlterConfigsRequest
        configs = [r.Config(name="retention.ms", value="1000")]
        return r(resources=[r.Resource(resource_type=2, resource_name="t", configs=configs)]), {0}

    def describe_log_dirs(self, version):
        return m.DescribeLogDirsRequest(topics=None), {0}

    def create_partitions(self, version):
        r = m.CreatePartitionsRequest
        return r(topics=[r.Topic(name="t", count=3, assignments=None)], timeout_ms=1000), {0}

    def delete_groups(self, version):
        return m.DeleteGroupsRequest(groups_names=["g", "none"]), {
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }

    def incremental_alter_configs(self, version):
        r = m.IncrementalAlterConfigsRequest
        configs = [r.Config(name="retention.ms", config_operation=0, value="1000")]
        return r(resources=[r.Resource(resource_type=2, resource_name="t", configs=configs)]), {0}

    def offset_delete(self, version):
        r = m.OffsetDeleteRequest
        topic = r.Topic(name="t", partitions=[r.Partition(partition_index=0)])
        return r(group_id="g", topics=[topic]), {0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    def sasl_handshake(self, version):
        return m.SaslHandshakeRequest(mechanism="PLAIN"), {ErrorCode.ILLEGAL_SASL_STATE}

    def sasl_authenticate(self, version):
        return m.SaslAuthenticateRequest(auth_bytes=b"a"), {ErrorCode.ILLEGAL_SASL_STATE}

    def describe_user_scram_credentials(self, version):
        return m.DescribeUserScramCredentialsRequest(users=None), {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    def alter_user_scram_credentials(self, version):
        r = m.AlterUserScramCredentialsRequest
        deletions = [r.Deletion(name="alice", mechanism=1)]
        return r(deletions=deletions), {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    def describe_acls(self, version):
        request = m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        return request, {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    def create_acls(self, version):
        r = m.CreateAclsRequest
        rule = r.Creation(
            resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:alice", host="*", operation=3,
            permission_type=3,
        )  # fmt: skip
        return r(creations=[rule]), {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    def delete_acls(self, version):
        r = m.DeleteAclsRequest
        chosen = r.Filter(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        return r(filters=[chosen]), {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    def describe_cluster(self, version):
        return m.DescribeClusterRequest(include_cluster_authorized_operations=True), {0}

    def describe_producers(self, version):
        r = m.DescribeProducersRequest
        return r(topics=[r.Topic(name="t", partition_indexes=[0])]), {0}

    def list_config_resources(self, version):
        return m.ListConfigResourcesRequest(), {0}

    def describe_topic_partitions(self, version):
        r = m.DescribeTopicPartitionsRequest
        return r(topics=[r.Topic(name="t")], response_partition_limit=1), {0}


ALL = [(api.key, version) for api in apis.APIS for version in range(api.version_min, api.version_max + 1)]


@pytest.mark.parametrize(("key", "version"), ALL, ids=[f"{key.name.lower()}-{version}" for key, version in ALL])
async def test_a_realistic_request_is_answered(kafka, key, version):
    world = await World().open(kafka)
    request, codes = world.request(key, version)
    assert key_of(request) is key

    answer = await world.client.ask(request, version)

    found = find_codes(answer)
    assert set(found) <= {int(code) for code in codes}, answer
    assert found or key in (ApiKey.PRODUCE, ApiKey.LIST_CONFIG_RESOURCES)


@pytest.mark.parametrize(("key", "version"), ALL, ids=[f"{key.name.lower()}-{version}" for key, version in ALL])
async def test_a_request_of_defaults_is_answered(kafka, key, version):
    client = await kafka.client(client_id=None)

    answer = await client.ask(_empty(key), version)

    assert ErrorCode.UNKNOWN_SERVER_ERROR not in find_codes(answer)


def _empty(key):
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request = getattr(m, f"{name}Request")()
    if key is ApiKey.PRODUCE:
        request.acks = 1
    return request


async def test_every_advertised_version_has_a_schema():
    for api in apis.APIS:
        schema = codec.versions(api.key)
        assert schema[0] <= api.version_min <= api.version_max <= schema[-1]


async def test_api_versions_lists_the_served_apis_and_no_feature(kafka):
    client = await kafka.client()

    answer = await client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)

    listed = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
    assert listed == {int(api.key): (api.version_min, api.version_max) for api in apis.APIS}
    assert listed[ApiKey.PRODUCE][0] == 0  # KAFKA-18659
    assert not set(listed) & {24, 25, 26, 28, 68, 69, 76, 77, 78, 79}  # transactions, KIP-848, share groups: not yet
    assert answer.finalized_features == []


@pytest.mark.parametrize("version", [5, 99, 32767])
async def test_a_newer_api_versions_gets_version_0_and_error_35_kip_511(kafka, version):
    client = await kafka.client()
    client.send_bytes(struct.pack(">ihhih", 14, 18, version, 7, -1) + bytes([0, 0, 0, 0]))

    frame = await client.receive_frame()
    (correlation_id,) = struct.unpack_from(">i", frame)
    answer = codec.response(ApiKey.API_VERSIONS, 0).decode(frame, 4)

    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(item.api_key, item.min_version, item.max_version) for item in answer.api_keys] == [(18, 0, 4)]
    assert (await client.ask(m.ApiVersionsRequest(), 0)).error_code == 0  # and the connection stays open
