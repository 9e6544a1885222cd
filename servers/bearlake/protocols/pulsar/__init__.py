"""Apache Pulsar's binary protocol on top of `streams`: topics are streams, entries are record batches."""
