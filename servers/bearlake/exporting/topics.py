"""Creates topics of the target, with the configs that it knows.

Source: Kafka protocol guide (CreateTopics, CreatePartitions, DescribeConfigs).
"""

import asyncio
from collections.abc import Mapping

from bearlake.errors import Conflict, Denied, Invalid, Unavailable
from bearlake.exporting.settings import ExportTargetSettings
from bearlake.importing.cluster import SourceCluster, SourceTopic, check
from bearlake.importing.source import Connection
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode

TIMESTAMPS = "message.timestamp.type"
"""Config that would replace the timestamps of records: exported topics have CreateTime."""
_LOOK_COUNT = 20
"""Looks for a topic that was just created, a quarter of a second apart."""
_LOOK_PAUSE_S = 0.25


class TargetTopics:
    """The topics of one target."""

    def __init__(self, cluster: SourceCluster, settings: ExportTargetSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self.left: dict[str, list[str]] = {}
        """By topic that was created here, the configs that the target does not take."""

    async def ensure(
        self, name: str, count: int, configs: Mapping[str, str], *, may_create: bool = True
    ) -> SourceTopic | None:
        """Return the topic with `count` partitions; creates it and adds partitions. None: it is not there, and `may_create` is False.

        Raises:
            Conflict: it has more partitions.
            Denied: the user may not create it.
            Invalid: the target cannot have it.
            Unavailable: the target does not answer, or has no leader for a new partition yet.
        """
        found = await self._cluster.topic(name)
        if found is None:
            if not may_create:
                return None
            await self._create(name, count, configs)
            found = await self._look(name, count)
        if len(found.leaders) < count:
            await self._add(name, count)
            found = await self._look(name, count)
        if len(found.leaders) > count:
            raise Conflict(
                f"topic {name!r} has {len(found.leaders)} partitions at the target, and {count} at the source"
            )
        return found

    async def _look(self, name: str, count: int) -> SourceTopic:
        for _ in range(_LOOK_COUNT):
            try:
                found = await self._cluster.topic(name)
            except Unavailable:
                found = None  # such as LEADER_NOT_AVAILABLE
            if found is not None and len(found.leaders) >= count and all(found.leaders):
                return found
            await asyncio.sleep(_LOOK_PAUSE_S)
        raise Unavailable(f"the target has no leader for each of {count} partitions of topic {name!r}")

    async def _create(self, name: str, count: int, configs: Mapping[str, str]) -> None:
        wanted = {**configs, TIMESTAMPS: "CreateTime"}
        left = [TIMESTAMPS] if configs.get(TIMESTAMPS, "CreateTime") != "CreateTime" else []
        async with await self._cluster.connect(self._cluster.controller) as connection:
            code, text = await self._ask_create(connection, name, count, wanted, validate_only=True)
            if code == ErrorCode.INVALID_CONFIG:
                for key in sorted(wanted):
                    code, _ = await self._ask_create(connection, name, count, {key: wanted[key]}, validate_only=True)
                    if code == ErrorCode.INVALID_CONFIG:
                        del wanted[key]
                        left.append(key)
            code, text = await self._ask_create(connection, name, count, wanted)
        if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise Denied(f"the target does not let us create topic {name!r}")
        if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            check(code, f"topic {name!r}", self._settings.PEER)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Invalid(f"the target cannot create topic {name!r}: {_name(code)} {text}".rstrip())
        if left:
            self.left[name] = sorted(set(left))

    async def _ask_create(
        self, connection: Connection, name: str, count: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> tuple[int, str]:
        """Return the error code and the message."""
        kind = messages.CreateTopicsRequest
        topic = kind.Topic(
            name=name,
            num_partitions=count,
            replication_factor=self._settings.replication_factor,
            assignments=[],
            configs=[kind.Config(name=key, value=value) for key, value in configs.items()],
        )
        request = kind(topics=[topic], timeout_ms=self._settings.timeout_ms, validate_only=validate_only)
        answer = await connection.ask(request, wait_ms=self._settings.timeout_ms)
        return answer.topics[0].error_code, answer.topics[0].error_message or ""

    async def _add(self, name: str, count: int) -> None:
        kind = messages.CreatePartitionsRequest
        topic = kind.Topic(name=name, count=count, assignments=None)
        request = kind(topics=[topic], timeout_ms=self._settings.timeout_ms, validate_only=False)
        async with await self._cluster.connect(self._cluster.controller) as connection:
            answer = await connection.ask(request, wait_ms=self._settings.timeout_ms)
        code = answer.results[0].error_code
        if code == ErrorCode.INVALID_PARTITIONS:
            return  # another process was first
        check(code, f"more partitions of topic {name!r}", self._settings.PEER)


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
