"""The API definition `bearlake/stream/v1/stream.proto`, and the Python code that `generate.py` generates from it (checked in).

`stream_pb2` has the messages. There are no generated stubs: `methods.py` has one line per method, for server and client.
"""
