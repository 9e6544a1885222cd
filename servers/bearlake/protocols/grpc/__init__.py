"""The gRPC server: the API bearlake.stream.v1 on top of the stream layer."""

import os

# Our child processes exec at once, so gRPC's fork handlers are useless, and they print warnings to standard error.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's core bypasses our log and writes to standard error, even without an error (when a server stops accepting).
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
