"""The topics of an import from Pulsar, and the configs that their streams get."""

from collections.abc import Sequence

from bearlake.importing.pulsar.cluster import PulsarCluster, PulsarTopic
from bearlake.importing.pulsar.target import configs_of


class PulsarSelection:
    """Looks for topics, and remembers those that it has found."""

    def __init__(self, cluster: PulsarCluster, patterns: Sequence[str]) -> None:
        """`patterns`: as `PulsarCluster.topics` takes them."""
        self._cluster = cluster
        self._patterns = patterns
        self.configs: dict[str, dict[str, str]] = {}
        """Configs of new streams, by topic."""

    async def look(self) -> list[PulsarTopic]:
        """Return the topics that match now. Raises as `PulsarCluster.topics`."""
        topics = await self._cluster.topics(self._patterns)
        for topic in topics:
            self.configs.setdefault(topic.name, configs_of(topic))
        return topics
