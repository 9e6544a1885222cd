"""The metadata store in PostgreSQL (14 or newer; tested with 15), for a cluster of servers.

Where to start: `store.py` opens a store and has the interfaces of `metadata`, one file each. `database.py` owns the connections, time
limits and repeats, and translates the driver's errors. `schema/` holds the tables, `functions/` the stored functions, one rule
per file (`layout.py` says how they change). A commit is one call of `commit_object` (`functions/commit.sql`; `commit.py` prepares its
parameters and reads its result). `watch.py` listens for entries.

Time is the database's clock (`functions/now_ms.sql`). Log positions are assigned under a lock that lasts until the commit, so they
become visible in order. A follower that has read up to a position therefore never misses an entry below it.
"""
