"""Share groups (KIP-932): membership and assignment. Several members may have the same partition.

    heartbeat → `machine.py` → the engine of consumer groups (`../consumer/engine.py`), with the assignor of `assignor.py`

A member has what it was assigned at once: nobody must give anything up first. Which member gets which record is decided elsewhere
(`streams/subscriptions/share`).
"""
