"""The topics of an import: those whose names match its patterns, and the configs that their streams get."""

from collections.abc import Mapping, Sequence

from bearlake.errors import Invalid
from bearlake.importing.cluster import SourceCluster, SourceTopic
from bearlake.streams import configs as stream_configs


class Selection:
    """Looks for topics, and remembers those that it has found."""

    def __init__(self, cluster: SourceCluster, patterns: Sequence[str]) -> None:
        """`patterns`: regular expressions of whole names of topics."""
        self._cluster = cluster
        self._patterns = patterns
        self.configs: dict[str, dict[str, str]] = {}
        """Configs of new streams, by topic: those that are set on the topic itself and have a meaning here."""
        self.left: dict[str, list[str]] = {}
        """Names of other configs of a topic, which cannot be used here."""

    async def look(self) -> list[SourceTopic]:
        """Return the topics that match now, by name; reads the configs of those that are new.

        Raises:
            Invalid: a pattern is not a regular expression.
            Denied: the source does not show the configs of a topic.
            Unavailable: the source does not answer.
        """
        topics = await self._cluster.topics(self._patterns)
        names = [topic.name for topic in topics if topic.name not in self.configs]
        if names:
            for name, configs in (await self._cluster.configs(names)).items():
                self.configs[name], left = usable(configs)
                if left:
                    self.left[name] = left
        return topics


def usable(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the source's configs that a stream here can have, and the names of the others."""
    kept: dict[str, str] = {}
    left: list[str] = []
    for name, text in configs.items():
        try:
            stream_configs.check({name: text})
        except Invalid:
            left.append(name)
        else:
            kept[name] = text
    return kept, left
