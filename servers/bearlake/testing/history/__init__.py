"""A checker of histories: it judges what clients saw of a lakestream by what they were promised.

It knows nothing of the implementation and imports nothing of it. The simulation, the fault tests and the nemesis write the same
histories, so all three are held to the same promises (`promises.py` lists them).

A client writes one event when it begins an operation and one when the operation ends; `format.py` documents the file.

- model.py: operations, their calls and answers
- promises.py: the promises, and what a violation says
- format.py: the JSON-lines format, version 1; writer.py: `Writer` for processes, `Recorder` for tests; reader.py: events → operations
- log.py: one partition's log; evidence.py: what the operations say about it; frontier.py: real-time order
- rows.py: the same partition in SQL
- linear.py: the search for a linearization; registers.py: committed offsets and streams as registers
- groups.py: who was entitled to which partition, and when
- check.py: splits a history by subject and runs the judges; `python -m bearlake.testing.history check FILE...`
"""
