"""Backups of the metadata store that are consistent with the object store, and their restore (decisions 232, 233).

manifest.py    the folder of a backup      taking.py       makes one
objects.py     are its objects there?      restoring.py    makes a metadata store from one
filling.py     offsets and producers that the lost store may have given out
"""
