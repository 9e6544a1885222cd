"""An explicit-state model of the protocol: the explorer covers every order, loss, repetition and delay of each part's messages.

- part.py, explorer.py, fingerprints.py: the interface of a part; the exploration; the set of visited states
- guards.py: the protocol's safety rules as switches; deleting a rule must make the explorer find the violation that it prevents
- write.py (write_state.py, write_promises.py, producers.py, rules.py): put, commit, reply, forbid, delete, forget, expire
- compaction.py (compaction_state.py): claim, prepare, table compare-and-swap, swap, sweeps; every open task ends
- leases.py: heartbeat, lapse, take-over, confirmation · offsets.py: generations, offset commits, sessions · catalog.py: incarnations
- cursors.py: subscriptions · exclusive.py: access modes of producers · registry.py: rules of schemas
- families.py: all parts by name and size · `python -m simulator.model`: explores them, deletes guards, prints a table

*Why the parts compose.* A part models what it needs of another part in its weakest form, as a step that is possible at any time:
compaction allows any claim to be taken over at any moment, so it needs no liveness; offsets allow any lease to be taken at any moment,
so they need no lapses; the write path allows objects to lose their references at any moment (a trim), and relies on compaction for the
promise that a swap keeps each offset readable. Each part's docstring states its remaining assumptions; another part checks each of them
as a promise. Parts share state only through the metadata store's transactions, and each transaction of the product belongs to one part.

*The product's pure decisions* are called, not copied: `Ledger.decide`, `producers`, `tokens`, `task_object_rules`, `applied_tasks`,
`liveness`, `cursor_rules`, `epoch_rules`, the registry's revisions. Decisions in SQL or in waiting coroutines are implemented again;
each part's docstring names them.

*Beyond the bounds* nothing is proven: more batches, attempts, claims, lapses and calls than a size has.
"""
