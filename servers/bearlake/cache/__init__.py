"""Caches of object bytes."""
