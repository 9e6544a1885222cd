"""A checker of histories: it checks the operations of lakestream clients against the promises made to clients.

The checker is independent of the implementation and imports nothing from it. The simulation, the fault tests and the nemesis write
histories in the same format, so all three are held to the same promises (`promises.py` lists them).

A client writes one event when an operation begins and one when it ends; `format.py` documents the file.

- model.py: operations, their calls and answers
- promises.py: the promises, and the description of a violation
- format.py: the JSON-lines format, version 1; writer.py: `Writer` for processes, `Recorder` for tests; reader.py: events → operations
- log.py: one partition's log; evidence.py: the log as the operations show it; frontier.py: real-time order
- rows.py: one partition's rows in SQL
- linear.py: the search for a linearization; registers.py: committed offsets and streams as registers
- transactions.py: the transactions of one topic, and what readers of committed records got
- groups.py: which member was entitled to a partition at which time
- check.py: splits a history by subject and runs the checks; `python -m simulator.history check FILE...`
"""
