"""Brings topics of another Kafka-compatible cluster here, with the same offsets (decisions 225 to 227)."""
