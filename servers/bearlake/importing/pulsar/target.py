"""The target of an import from Pulsar: streams whose mark `import.source` names the cluster and the topic."""

from collections.abc import Mapping

from typing_extensions import override

from bearlake.errors import Conflict
from bearlake.importing.cluster import SourceTopic
from bearlake.importing.pulsar.cluster import PulsarTopic
from bearlake.importing.target import Target
from bearlake.protocols.pulsar.topics import PARTITIONED
from bearlake.streams.catalog import StreamView


class PulsarTarget(Target):
    """The streams of one import."""

    @override
    async def ensure(self, topic: SourceTopic, configs: Mapping[str, str], *, may_create: bool = True) -> StreamView:
        view = await super().ensure(topic, configs, may_create=may_create)
        if view.partition_count > len(topic.leaders):  # Pulsar only adds partitions
            raise Conflict(
                f"stream {view.name!r} has {view.partition_count} partitions, and the source's topic only {len(topic.leaders)}: the topic "
                "was deleted and made anew, or somebody added partitions to the stream"
            )
        return view

    @override
    def _source(self, topic: SourceTopic) -> str:
        name = topic.topic if isinstance(topic, PulsarTopic) else topic.name
        return f"pulsar:{self._cluster_id}/{name}"


def configs_of(topic: PulsarTopic) -> dict[str, str]:
    """Return the configs of a topic's new stream.

    Pulsar keeps what a subscription has not acknowledged, however old it is. Here retention goes by age and size, so it is off until
    somebody sets it.
    """
    configs = {"retention.ms": "-1"}
    if topic.is_partitioned:
        configs[PARTITIONED] = "true"
    return configs
