"""Decisions: pure functions from what is wanted and what was seen to what has to be done and what shall be shown.

claims.py     which Stream owns a name
streams.py    what has to change in a data layer
selection.py  which streams a Compactor's workers have
trust.py      what a Compactor may say of its workers
needs.py      which tiers there must be, and how many workers now
endpoints.py  where clients connect
status.py     what resources show: conditions, endpoints, figures
"""
