"""A seeded simulation of a whole deployment: real write, commit, follow and read code, simulated time, network and crashes.

- loop.py: event loop with virtual time and processes that can be paused, crashed and resumed
- network.py: what can happen to a call of a store: delay, loss before or after the effect, stalls
- truth.py: the independent model: what is committed, and which of the invariants an observation breaks
- observed.py: the stores, with the model watching every effect
- world.py: one deployment: loop, stores, network, servers, what everybody shares and counts
- nodes.py: servers and the connections of clients to them; clients.py: producers and consumers; named_clients.py: named producers, and
  one that expects offsets; producer_truth.py: what producers may write
- chaos.py: crashes, zombies, stalls; stream changes, trims, probes; sweeps
- lake.py: compaction workers and their troubles; tables.py: tables in memory; lake_truth.py: what must hold of segments, rows, deletions
- lake_scenario.py: the compaction profile's settings; odd.py: batches that rows cannot hold; same.py: whether two batches are the same
- scenario.py: one seed: draws the settings, runs all of that, heals it, checks the end
- members.py: members of consumer groups and their troubles; group_scenario.py: the groups profile's settings; ending.py: checks of the end
- recorded.py: the history of the simulated clients; queries.py: a reader of tables
- history/: a checker of clients' histories that knows nothing of the code
- simulate.py: `python -m bearlake.testing.simulate [--profile compaction] --seed N [--trace] | --seeds A-B`
"""
