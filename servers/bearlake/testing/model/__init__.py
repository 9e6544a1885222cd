"""An explicit-state model of the protocol: each part is explored over every order, loss, repetition and delay of its messages.

- part.py, explorer.py, fingerprints.py: what a part is; the exploration; the set of visited states
- guards.py: the protocol's safety rules as switches; each can be deleted, and the harm that it prevents must show
- write.py (write_state.py, write_promises.py, producers.py, rules.py): put, commit, reply, forbid, delete, forget, expire
- compaction.py (compaction_state.py): claim, prepare, table compare-and-swap, swap, sweeps; every open task ends
- leases.py: heartbeat, lapse, take-over, confirmation · offsets.py: generations, offset commits, sessions · catalog.py: incarnations
- cursors.py: subscriptions · exclusive.py: access modes of producers · registry.py: rules of schemas
- families.py: all parts by name and size · `python -m bearlake.testing.model`: explores them, deletes guards, prints a table

*Why the parts compose.* Each part takes what it needs of another in its weakest form, as a step that is free at any time: compaction
lets any claim be taken over at any moment, so it needs nothing of liveness; offsets let any lease be taken at any moment, so they need
nothing of lapses; the write path lets objects lose their references at any moment (a trim), and leaves to compaction that a swap keeps
each offset readable. What remains of assumptions stands in each part's first lines, and is a promise that the other part checks. No state
is shared by two parts but through the metadata store's transactions, and each transaction of the product belongs to one part.

*What the product decides by itself* is called, not copied: `Ledger.decide`, `producers`, `tokens`, `task_rules`, `table.marks`, `liveness`,
`cursor_rules`, `epoch_rules`, the registry's revisions.
What only SQL or a waiting coroutine decides is written again, and named in each part's first lines.

*What the bounds leave out* is not proven: more batches, attempts, claims, lapses and calls than a size has.
"""
