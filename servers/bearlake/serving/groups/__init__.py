"""Groups across servers: who coordinates them, and how a server asks another one's coordinator for its own members.

    member of REST or gRPC → streams/groups/shared.py → `client` ── the admin API ──> `routes` → streams/groups/coordinator.py

Every server has the admin API, with its access rules and at an address that the others know, so nothing has to be set for it.
"""
