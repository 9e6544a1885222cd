"""The metadata store in one SQLite file (or in memory), shared by the processes of one host.

Where to start: `store.py` has the interfaces of `metadata`, one file each. `database.py` owns the connections, threads and transactions,
and translates sqlite3's errors. `schema/` is the layout. `log.py` is the commit log: it keeps a `metadata.ledger.Ledger` in memory,
applies the entries of other processes to the ledger (`catchup.py`), and rolls applied entries up into the index (`rollup.py`, `index.py`).

Time: all processes share one host, whose clock is the store's time (`clock.Clock`, injected by tests and simulation).
"""
