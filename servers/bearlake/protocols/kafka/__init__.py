"""The Kafka server: serves unmodified Kafka clients."""
