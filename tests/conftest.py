"""Fixtures that every folder of tests may ask for."""

pytest_plugins = ["fixtures.kafka_server", "fixtures.postgresql", "fixtures.postgresql_metadata", "fixtures.s3"]
