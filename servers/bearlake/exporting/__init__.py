"""Exports: topics back to another Kafka-compatible cluster (decisions 272 to 274)."""
