"""The operator at work: watches tell the world, workers bring it to what is wanted, one leader at a time.

watches.py   kopf: what changed
world.py     what is known, by kind and name; wakes the workers
apply.py     puts manifests, removes what is not wanted any more, and is silent when nothing changed
tiers.py     worker: tiers and workers of compaction, status of Compactors
settling.py  holds what a selector selects until it stays the same
streams.py   worker: streams of one data layer, status of Streams
finalizers.py the finalizer of Streams that go with their records
notes.py     statuses and Events
allowance.py how many Events there may be
many.py      work on many resources
loop.py      the loop of a worker: woken, or looking again after a while; failures wait longer and longer
lease.py     leadership
owner.py     the operator's own Deployment, and that no other operator has the namespace
resync.py    lists everything now and then: finds what watches missed, and a watch that is dead
health.py    probes and metrics over HTTP
process.py   all of it together
"""
