"""The catalog for other engines: the operations of Iceberg's REST specification on the catalog of the tables.

    model.py   refusals, answers   service.py  the operations   errors.py  the libraries' errors in the specification's words
    guard.py   what a commit of another engine may change       contents.py  the rows that a snapshot adds and removes

Only `model.py` works without pyiceberg.
"""
