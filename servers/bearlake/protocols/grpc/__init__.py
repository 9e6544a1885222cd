"""The gRPC server: bearlake.stream.v1 on the waist."""

import os

# Processes that are started from this one are executed at once; gRPC's handlers of forks only get in the way, and say so on standard error.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's core writes to standard error on its own, past our log, also when nothing is wrong (each time that a server stops accepting).
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
