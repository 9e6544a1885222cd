"""Share groups (KIP-932): consumers that acquire single records of a partition, with locks and delivery counts.

A share group is a subscription of another protocol: its cursor is stored with those of Pulsar's subscriptions, saved by the same saver,
under the same lease `dispatch/<partition>`. Its dispatcher works with offsets instead of entries, and consumers ask for records.

    handler ──> `streams/shares.py` ──> `../share_dispatch.py` ──> `partition.py` (timers, waiting) ──> `in_flight.py` (the rules, pure)

Only the dispatcher decides which member gets which offsets. The bytes come from the server that the member asked: any server can read them.
"""
