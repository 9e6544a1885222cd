"""The REST server: Confluent's REST Proxy, the Durable Streams protocol, and the schema registry, over HTTP."""
