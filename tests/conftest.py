"""Fixtures that every folder of tests may ask for."""

pytest_plugins = [
    "fixtures.certificates",
    "fixtures.iceberg_rest",
    "fixtures.kafka_server",
    "fixtures.grpc_server",
    "fixtures.postgresql",
    "fixtures.postgresql_metadata",
    "fixtures.pulsar_server",
    "fixtures.rest_server",
    "fixtures.s3",
    "fixtures.schema_registry",
]
