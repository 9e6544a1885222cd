"""Validation at the door: which schemas the keys and values of appended records have, and whether they can be decoded.

    known       what this server knows of the registry: ids of subjects, and validators of schemas; look-ups
    examining   examines the keys and values of one batch, on the event loop or in a thread
    settings    limits

`streams/checking.py` calls it for every protocol, before a batch gets its place in the write path. Source: decision 240.
"""
