"""Streams groups (KIP-1071): the members are threads of Kafka Streams, and the coordinator gives them tasks of one topology.

    heartbeat → `machine.py` → `engine.py` ─┬─ `configuring.py`   topics that exist, counts of tasks, topics to create
                                            ├─ `assignor.py`      which member should have which task
                                            └─ `reconciling.py`   the next step of a member: no task before its old owner gave it up

A task is one partition of the input of a subtopology. An active task works; a standby task only keeps a copy of its state.
"""
