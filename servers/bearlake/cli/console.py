"""`bearlake console`."""

import os
from pathlib import Path
from typing import Any

import click

from bearlake.cli.extras import server_module
from bearlake.cli.server_options import PATH, as_settings, console_port


@click.command()
@click.option("--config", type=PATH, help="Settings file (YAML); see `bearlake config show`.")
@click.option(
    "--ready-file", type=PATH, help="File to write (atomically, as JSON) once the console accepts connections."
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on  [default: 127.0.0.1].")
@console_port
@click.option(
    "--catalog", "console_catalog_url", metavar="URL", help="Iceberg REST catalog  [default: http://127.0.0.1:8181]."
)
@click.option("--pulsar", "pulsar_url", metavar="URL", help="Pulsar's HTTP API  [default: http://127.0.0.1:8080].")
@click.option("--registry", "registry_url", metavar="URL", help="Schema registry  [default: http://127.0.0.1:8081].")
@click.option("--rest", "rest_url", metavar="URL", help="REST server  [default: http://127.0.0.1:8082].")
@click.option("--admin", "admin_url", metavar="URL", help="Admin API  [default: http://127.0.0.1:9644].")
def console(config: Path | None, ready_file: Path | None, **given: Any) -> int:
    """Serve the console, a web page, until Ctrl-C.

    The console shows a running deployment. It uses the admin API, REST, the schema registry, Pulsar's HTTP API and the Iceberg REST
    catalog, with the login of the person at the browser. `bearlake up` has it already.
    """
    app_console = server_module("bearlake.app.console")

    code: int = app_console.run(config, ready_file, as_settings(given), os.environ)
    return code
