"""The REST server: Confluent's REST Proxy, tailing of streams, and the schema registry, over HTTP."""
