"""A seeded simulation of a whole deployment: the real write, commit, follow and read code with simulated time, network and crashes.

- loop.py: event loop with virtual time and processes that can be paused, crashed and resumed
- network.py: faults of store calls: delay, loss before or after the effect, stalls
- truth.py: the independent model: what is committed, and which invariant an observation breaks
- observed.py: the stores, with the model observing every effect
- heartbeats.py: heartbeats of a simulated process, and its watch over the other processes
- deployment.py: one deployment: loop, stores, network, servers, shared state and counters
- nodes.py: servers and their client connections; clients.py: producers; consumers.py: consumers
- named_clients.py: named producers, and a producer that expects offsets; producer_truth.py: what producers may write
- chaos.py: crashes, zombies, stalls; stream changes, trims, probes; sweeps
- lake.py: compaction workers; worker_faults.py: their faults; tables.py: tables in memory
- lake_truth.py: invariants of segments, rows, deletions; lake_scenario.py: the compaction profile's settings
- generated_batches.py: random batches, some of which rows cannot hold; batch_comparison.py: comparison of two batches
- scenario.py: one seed: draws the settings, runs the deployment, heals it, checks the final state
- members.py: members of consumer groups and their faults; group_scenario.py: the groups profile's settings; ending.py: final checks
- client_history.py: the history of the simulated clients; queries.py: a reader of tables
- history/: a checker of clients' histories that is independent of the implementation
- simulate.py: `PYTHONPATH=tests .venv/bin/python -m simulator.simulate [--profile compaction] --seed N [--trace] | --seeds A-B`
"""
