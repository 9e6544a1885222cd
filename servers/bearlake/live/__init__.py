"""Tables without lag: a table's newest snapshot together with the records that compaction has not reached yet.

A *view* is one state of a table for readers: the data files of its current snapshot, and *pieces*, short-lived Parquet files with the
*tail*: the stable records between the table's ends and the ends of the log. Every record that was acknowledged before a view's build began
is in it exactly once (the build reads the table first and the log's bounds afterwards). Nothing is written while nobody reads.

    tail.py     which offsets a view needs, and which pieces to keep; pure
    slices.py   where the index has these offsets, cut to whole batches
    pieces.py   writes a piece, with the code of a compaction task
    views.py    builds the views of streams; several readers share a build
    sweep.py    deletes pieces that no view can name any more
    catalog.py  views as answers of the REST catalog
    planned.py  plans scans of views for engines
    log_rows.py reads offsets as rows, without a table: for Spark's data source (`spark/`)

`table/synthetic.py` describes a view as an Iceberg snapshot, which unmodified engines read. `bearlake sql` reads the pieces itself.
"""
