"""One server process, composed from its parts: `bearlake up` and `bearlake serve` differ in nothing but settings.

`run.py` is where the command line comes in, `process.py` is the composition, in the order in which things start and stop.
"""
