"""Groups across servers: which server coordinates a group, and how a server sends its members' requests to another coordinator.

    member of REST or gRPC → streams/groups/shared.py → `client` ── the admin API ──> `routes` → streams/groups/coordinator.py

Every server has the admin API, with access rules and an address that its peers know, so groups need no further settings.
"""
