"""`python -m bearlake_operator --settings FILE`: runs the operator."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from bearlake_operator import logs, settings
from bearlake_operator.controllers.process import TOKENS, Operator
from bearlake_operator.errors import Invalid
from bearlake_operator.kube_config import ClientConfig


def main() -> int:
    """Run the operator. The exit code is 0 after a signal, 1 after a failure, 2 for invalid settings."""
    parser = argparse.ArgumentParser(prog="bearlake-operator", description="Reconciles Streams and Compactors.")
    parser.add_argument("--settings", type=Path, default=Path("/etc/bearlake/operator.yaml"), help="settings file")
    parser.add_argument("--tokens", type=Path, default=TOKENS, help="folder with the admin tokens, <data layer>/<key>")
    parser.add_argument("--host", default="0.0.0.0", help="address of probes and metrics")  # noqa: S104
    parser.add_argument("--port", type=int, default=8080, help="port of probes and metrics; 0: any free port")
    options = parser.parse_args()
    logs.configure()
    logging.getLogger("kopf").setLevel(logging.ERROR)  # it warns about features that the operator does not use
    try:
        values, config = settings.load(options.settings), ClientConfig.discover()
    except Invalid as error:
        print(f"bearlake-operator: {error}", file=sys.stderr)  # noqa: T201 - for the person or pod that started it
        return 2

    async def run() -> None:
        await Operator(values, config, host=options.host, port=options.port, tokens=options.tokens).run()

    try:
        asyncio.run(run())
    except Exception:  # the boundary: the process exits, and is restarted
        logging.getLogger(__name__).exception("the operator stops after a failure")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
