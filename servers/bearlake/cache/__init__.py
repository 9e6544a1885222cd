"""Caches of object bytes and of values decoded from objects."""
