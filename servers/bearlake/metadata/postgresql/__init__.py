"""The metadata store in PostgreSQL (14 or newer; tested with 15), for a cluster of servers.

Where to start: `store.py` opens a store and holds the nouns; each noun is a file. `database.py` owns the connections, time limits and
repeats, and translates the driver's errors. `migrations/` is the layout, tables and stored functions, in order. A commit is one call of
`commit_object` (`migrations/0002_commit.sql`; `commit.py` prepares its arguments and reads its result). `watch.py` listens for entries.

Time is the database's clock (`now_ms` in the migrations). Log positions are assigned under a lock that lasts until the commit, so they
become visible in order: a follower that has read up to a position never misses an entry below it.
"""
