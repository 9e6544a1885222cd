"""`python -m bearlake_operator.metrics_api`: runs the metrics API."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from bearlake_operator import logs, settings
from bearlake_operator.errors import Invalid
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.manifests import server_settings
from bearlake_operator.metrics_api import process
from bearlake_operator.metrics_api.process import Options
from bearlake_operator.trust import AUTHORITIES


def main() -> int:
    """Run the metrics API. The exit code is 0 after a signal, 1 after a failure, 2 for invalid settings or options."""
    parser = argparse.ArgumentParser(
        prog="bearlake-metrics-api", description="Serves metrics to Kubernetes autoscalers."
    )
    parser.add_argument(
        "--settings", type=Path, default=Path("/etc/bearlake/operator.yaml"), help="the operator's settings file"
    )
    parser.add_argument(
        "--tokens",
        type=Path,
        default=Path("/etc/bearlake/tokens"),
        help="folder with the admin tokens, <data layer>/<key>",
    )
    parser.add_argument(
        "--authorities",
        type=Path,
        default=AUTHORITIES,
        help="folder with the authorities of admin APIs with TLS, <data layer>/ca.crt",
    )
    parser.add_argument(
        "--certificates", type=Path, default=Path("/etc/bearlake/certificates"), help="folder with tls.crt and tls.key"
    )
    parser.add_argument("--host", default="0.0.0.0", help="address of all ports")  # noqa: S104
    parser.add_argument("--port", type=int, default=8443, help="port of the APIs (TLS)")
    parser.add_argument("--probe-port", type=int, default=8080, help="port of probes and metrics")
    parser.add_argument(
        "--admin-port", type=int, default=server_settings.ADMIN_PORT, help="port of the pods' admin API"
    )
    parser.add_argument("--period-seconds", type=float, default=10, help="interval between scrapes of a pod")
    parser.add_argument("--window-seconds", type=float, default=30, help="window over which rates are averaged")
    given = parser.parse_args()
    logs.configure()
    try:
        values, client_config = settings.load(given.settings), ClientConfig.discover()
    except Invalid as error:
        print(f"bearlake-metrics-api: {error}", file=sys.stderr)  # noqa: T201 - for the person or pod that started it
        return 2
    options = Options(
        host=given.host,
        port=given.port,
        probe_port=given.probe_port,
        certificates=given.certificates,
        tokens=given.tokens,
        authorities=given.authorities,
        admin_port=given.admin_port,
        period_s=given.period_seconds,
        window_s=given.window_seconds,
    )
    try:
        asyncio.run(process.run(values, client_config, options))
    except ValueError as error:
        print(f"bearlake-metrics-api: {error}", file=sys.stderr)  # noqa: T201 - for the person or pod that started it
        return 2
    except Exception:  # the boundary: the process exits, and is restarted
        logging.getLogger(__name__).exception("the metrics API stops after a failure")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
