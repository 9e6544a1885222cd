"""Spark's Python daemon, which forks the workers; here what they need is imported before, once for all of them.

A worker then starts in milliseconds, and shares the libraries' memory with the others. Spark runs this module instead of its own by the
property `spark.python.daemon.module`. Arrow's thread pools survive a fork by design (they are made anew in the child).

Two things that Spark's workers do for every task are made cheap (110 ms of CPU per task before, 1 after): a garbage collection, by
freezing what was imported; and `importlib.invalidate_caches`, which reads the whole directory of every zip file on the path again:
Spark puts its own PySpark there as a zip file, which nobody needs where PySpark is installed.
"""

import gc
import sys
import zipimport
from importlib.machinery import PathFinder


def without_zip_files() -> None:
    """Import nothing from zip files, also from those that Spark adds later, unless PySpark is nowhere else."""
    rest = [place for place in sys.path if not place.endswith(".zip")]
    if PathFinder.find_spec("pyspark", rest) is not None:
        sys.path[:] = rest
        sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not zipimport.zipimporter]
        sys.path_importer_cache.clear()


def main() -> None:
    """Fork workers until standard input ends."""
    without_zip_files()
    from pyspark.daemon import manager

    import bearlake.compaction.spark.executor  # noqa: F401 (for what it imports)

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
