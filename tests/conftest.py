"""Fixtures that every folder of tests may ask for."""

pytest_plugins = ["fixtures.postgresql", "fixtures.postgresql_metadata", "fixtures.s3"]
