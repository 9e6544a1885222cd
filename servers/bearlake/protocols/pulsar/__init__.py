"""Apache Pulsar's binary protocol on the waist: topics are streams, entries are record batches."""
