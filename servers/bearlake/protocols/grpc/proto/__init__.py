"""The API as files: `bearlake/stream/v1/stream.proto`, and what `generate.py` made of it for Python (checked in).

`stream_pb2` are the messages. There are no generated stubs: `methods.py` has one line per method, for server and client.
"""
