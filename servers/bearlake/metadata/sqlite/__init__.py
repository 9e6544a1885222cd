"""The metadata store in one SQLite file (or in memory), shared by the processes of one host.

Ways through: `store.py` holds the nouns; each noun is a file; `database.py` owns the connections, the threads, transactions and the
translation of sqlite3's errors; `migrations/` is the layout. `log.py` is the commit log: it keeps a `metadata.ledger.Ledger` in memory,
follows the entries of other processes into it (`catchup.py`), and moves what is settled into the index (`rollup.py`, `index.py`).

Time: all processes share one host, whose clock is the store's time (`clock.Clock`, injected by tests and simulation).
"""
