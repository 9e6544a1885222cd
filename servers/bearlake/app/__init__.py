"""One server process, composed from its parts: `bearlake up` and `bearlake serve` differ only in settings.

`run.py` is the entry point for the command line. `process.py` is the composition, in the order in which parts start and stop.
"""
