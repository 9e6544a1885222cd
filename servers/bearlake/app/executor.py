"""`bearlake executor`: the process of an executor's pod becomes Spark's JVM, with the same process id."""

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from bearlake.compaction.spark.pod import executor_command
from bearlake.settings.document import load_document


def run(environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the executor that Spark's variables describe. Raises `Invalid`, `Unsupported`."""
    arguments, environment = executor_command(load_document(None, environ).settings.spark, environ)
    sys.stdout.flush()
    os.execve(arguments[0], list(arguments), dict(environment))  # noqa: S606 - our own arguments
