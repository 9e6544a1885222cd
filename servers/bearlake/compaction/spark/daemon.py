"""Spark's Python daemon, which forks the workers. This version first imports what all workers need.

A worker then starts in milliseconds and shares the libraries' memory with the others. The property `spark.python.daemon.module` makes
Spark run this module instead of its own. Arrow's thread pools are designed to survive a fork (the child creates them anew).

Two operations that Spark's workers run for every task become cheap (before: 110 ms of CPU time per task, after: 1 ms). Freezing the
imported objects speeds up garbage collection. `importlib.invalidate_caches` reads the directory of every zip file on the path; Spark
adds its own PySpark as a zip file, which is unnecessary where PySpark is installed.
"""

import gc
import sys
import zipimport
from importlib.machinery import PathFinder


def without_zip_files() -> None:
    """Disable imports from zip files, including those Spark adds later, unless PySpark is available only as a zip file."""
    rest = [place for place in sys.path if not place.endswith(".zip")]
    if PathFinder.find_spec("pyspark", rest) is not None:
        sys.path[:] = rest
        sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not zipimport.zipimporter]
        sys.path_importer_cache.clear()


def main() -> None:
    """Fork workers until standard input closes."""
    without_zip_files()
    from pyspark.daemon import manager

    import bearlake.compaction.spark.executor  # noqa: F401 (for what it imports)

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
