"""The catalog for other engines: the operations of Iceberg's REST specification on the catalog of the tables.

    model.py     refusals, answers            service.py   the operations
    requests.py  what clients ask for         answers.py   tables as JSON          errors.py  errors in the specification's words
    guard.py     what a commit may change     columns.py   the same for columns
    contents.py  rows that a snapshot adds and removes, by its manifests           avro.py    checks manifests before they are decoded
    entries.py   what manifests may say about any file                             readability.py   what every engine must be able to read
    footers.py   the same by the footers of its files                              roots.py   folders outside of the object store
    places.py    folders of tables that are no stream's
    scans.py     what a scan asks for, and plan tasks                              plans.py     its files, as tasks in pages
    pruning.py   the part of a filter by which files can be left out

Only `model.py` and `scans.py` work without pyiceberg.
"""
