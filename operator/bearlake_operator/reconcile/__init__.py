"""Decisions as pure functions: from specs and observations to the changes to make and the statuses to show.

claims.py             which Stream owns a stream name
stream_changes.py     which changes a stream needs
selection.py          which streams a Compactor compacts
restricted_fields.py  which fields a Compactor must not set outside of the operator's namespace
required_tiers.py     which tiers must exist
schedule.py           how many workers a Compactor's schedule asks for
endpoints.py          where clients connect
status.py             what a status shows: conditions, endpoints, figures
"""
