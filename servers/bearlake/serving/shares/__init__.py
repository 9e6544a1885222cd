"""Share groups across servers: a server asks the dispatcher of a partition on another server (KIP-932).

    member of a Kafka server → streams/shares.py → `client` ── the admin API ──> `routes` → streams/subscriptions/share_dispatch.py

Only offsets are exchanged: every server can read the records itself.
"""
