"""One client of a run as a process: `python tests/nemesis/client.py KIND PLAN` (JSON). `fleet.py` starts it, SIGTERM ends it.

A kind of client is a function in `clients/` that runs until `script.is_running` is false. If it returns earlier or fails, the process is
started again.
"""

import importlib
import json
import sys

from nemesis.script import Script

KINDS = {
    "produce-librdkafka": "kafka:produce_idempotently",
    "produce-short-lived": "kafka:produce_short_lived",
    "produce-plain": "kafka:produce_plainly",
    "produce-java": "programs:produce_by_java",
    "produce-franz": "programs:produce_by_franz_go",
    "produce-pulsar": "pulsars:produce",
    "produce-rest": "rest:produce",
    "produce-grpc": "grpcs:produce",
    "produce-odd": "grpcs:produce_odd_batches",
    "produce-transactional": "transactional:produce",
    "produce-cleaned": "cleaned:produce",
    "read-cleaned": "cleaned:read",
    "share-kafka": "sharing:share",
    "copy-committed": "copying:copy",
    "read-kafka": "kafka:read",
    "read-committed": "transactional:read",
    "read-grpc": "grpcs:read",
    "read-odd": "grpcs:read_odd_batches",
    "member-kafka": "kafka:be_member",
    "member-silent": "silent:be_silent_member",
    "member-rest": "rest:be_member",
    "consume-pulsar": "pulsars:consume",
    "churn-topics": "topics:churn",
    "define": "definitions:define",
    "sql": "tables:query",
    "pyiceberg": "tables:scan",
}
"""The function of each kind of client: `module:function` below `clients/`."""


def main(kind: str, plan: str) -> None:
    """Run one client."""
    module, _, function = KINDS[kind].partition(":")
    script = Script(kind, json.loads(plan))
    getattr(importlib.import_module(f"nemesis.clients.{module}"), function)(script)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
