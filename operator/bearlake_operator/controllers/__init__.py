"""The operator's controllers: watches fill a cache, control loops reconcile what differs, and one replica leads at a time.

watches.py             kopf watches that report every change to the cache
resync.py              periodic lists that find changes the watches missed
cache.py               the known resources, by kind, namespace and name; wakes the control loops
reconcile_loop.py      runs one controller: on change, after a delay, and with backoff after a failure
tiers.py               controller of protocol tiers and compaction workers, and of the status of Compactors
streams.py             controller of one data layer's streams, and of the status of its Streams
finalizers.py          the finalizer of Streams with `deletionPolicy: Delete`
apply.py               server-side apply and pruning of the operator's own objects
debounce.py            delays a changing value until it is stable
external_addresses.py  load balancers and nodes through which clients reach the tiers
status_writer.py       writes the status of a resource when it changes
events.py              records Events about resources
rate_limit.py          limits the number of Events per resource
concurrency.py         runs one task per resource, and collects errors
leader_election.py     leader election with a Lease
owner_references.py    the operator's own Deployment, which owns every object that it creates
health.py              probes and metrics over HTTP
process.py             the operator's process
"""
