"""Consumer groups of KIP-848: members send heartbeats, and the coordinator assigns the partitions.

    ConsumerGroupHeartbeat ─> machine ─┬─> subscriptions: which topics, the group epoch
                                       ├─> assignors: the target assignment, the assignment epoch
                                       ├─> reconciling: a member's next step to its target
                                       └─> a save, which the answer waits for
    JoinGroup, SyncGroup, … ─> classic_members ─┘          (members that still use the classic protocol)

Nothing here does I/O. `streams/groups/ownership.py` owns the groups of both protocols, and turns one into the other (`migration`).
"""
