"""What a compaction worker needs of this machine besides Python's packages: Spark, and a Java that runs it."""

from bearlake.compaction.spark.session import jvm_command
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.errors import Unsupported


def lacking(settings: SparkSettings) -> str | None:
    """Return what is missing here and how to get it; None if a worker can start. Blocks for a run of `java -version`, 30 s at most."""
    try:
        jvm_command(settings)
    except Unsupported as error:
        return str(error)
    return None
