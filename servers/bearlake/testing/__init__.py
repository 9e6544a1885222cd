"""A seeded simulation of a whole deployment: real write, commit, follow and read code, simulated time, network and crashes.

loop.py      event loop with virtual time and processes that can be paused, crashed and resumed
network.py   what can happen to a call of a store: delay, loss before or after the effect, stalls
truth.py     the independent model: what is committed, and which of the invariants an observation breaks
nodes.py     servers: start, crash, pause (zombies), restart under a new epoch
clients.py   producers and consumers;  admin.py  stream changes, trims, probes
scenario.py  one seed: draws the settings, runs all of that, checks the end
simulate.py  `python -m bearlake.testing.simulate --seed N [--trace] | --seeds A-B`
"""
