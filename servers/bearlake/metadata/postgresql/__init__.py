"""The metadata store in PostgreSQL (14 or newer; tested with 15), for a cluster of servers.

Ways through: `store.py` opens a store and holds the nouns; each noun is a file; `database.py` owns the connections, time limits, repeats
and the translation of the driver's errors; `migrations/` is the layout, tables and stored functions, in order. A commit is one call of
`commit_object` (`migrations/0002_commit.sql`, prepared and read by `commit.py`); `watch.py` hears of new entries.

Time is the database's clock (`now_ms` in the migrations). Positions of the log are taken under a lock that lasts until the commit,
so they become visible in order, and a follower that has read up to one never misses an entry below it.
"""
