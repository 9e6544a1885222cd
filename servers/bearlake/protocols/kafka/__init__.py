"""The Kafka server: what stock Kafka clients speak to."""
