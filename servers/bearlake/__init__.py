"""Bearlake: a lakestream, one log that is at the same time an Apache Iceberg table.

The data plane. `servers/DESIGN.md` is the map: glossary, invariants I1-I7, and the way of one record through the files.
"""

import sys

__version__ = "0.1.0"

if sys.version_info < (3, 13):
    from bearlake.asyncio_repairs import repair_task_groups, repair_timeouts

    repair_task_groups()
    if sys.version_info < (3, 11, 3):
        repair_timeouts()
