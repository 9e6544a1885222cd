"""`python -m bearlake_operator --settings FILE`: the operator's process."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from bearlake_operator import logs, settings
from bearlake_operator.errors import Invalid
from bearlake_operator.handlers.process import TOKENS, Operator
from bearlake_operator.kube import Access


def main() -> int:
    """Run; the exit code is 0 after a signal, 1 after a failure, 2 for wrong settings."""
    parser = argparse.ArgumentParser(prog="bearlake-operator", description="Reconciles Streams and Compactors.")
    parser.add_argument("--settings", type=Path, default=Path("/etc/bearlake/operator.yaml"), help="settings document")
    parser.add_argument(
        "--tokens", type=Path, default=TOKENS, help="folder with <data layer>/<key> of the admin tokens"
    )
    parser.add_argument("--host", default="0.0.0.0", help="address of probes and metrics")  # noqa: S104
    parser.add_argument("--port", type=int, default=8080, help="port of probes and metrics; 0: a free one")
    options = parser.parse_args()
    logs.start()
    logging.getLogger("kopf").setLevel(logging.ERROR)  # its warnings are of what we do not use
    try:
        values, access = settings.load(options.settings), Access.find()
    except Invalid as error:
        print(f"bearlake-operator: {error}", file=sys.stderr)  # noqa: T201 - said to whoever started it
        return 2

    async def run() -> None:
        await Operator(values, access, host=options.host, port=options.port, tokens=options.tokens).run()

    try:
        asyncio.run(run())
    except Exception:  # the boundary: the process ends, and is started anew
        logging.getLogger(__name__).exception("the operator stops")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
