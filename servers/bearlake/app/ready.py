"""Announcing that the server is up: the ready file for programs, the banner for people."""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from bearlake import __version__
from bearlake.errors import Invalid
from bearlake.serving.addresses import url_of
from bearlake.serving.authentication.peer import login_rules
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.settings.document import ListenersSettings

NAMES = {
    "kafka": "Kafka",
    "pulsar": "Pulsar",
    "pulsar_http": "Pulsar's HTTP API",
    "rest": "REST",
    "grpc": "gRPC",
    "registry": "schema registry",
    "catalog": "Iceberg REST catalog",
    "console": "Console",
}


def addresses(endpoints: Mapping[str, str], listeners: ListenersSettings) -> dict[str, str]:
    """Return endpoints as in the ready file: one key per protocol, HTTP endpoints as URLs."""
    of_http = {
        "rest": listeners.rest,
        "registry": listeners.registry,
        "pulsar_http": listeners.pulsar_http,
        "catalog": listeners.catalog,
    }
    secure = {name for name, listener in of_http.items() if listener.tls_certificate_file}
    return {
        name: f"https://{address}"
        if name in secure
        else url_of(address)
        if name in ("admin", "console") or name in of_http
        else address
        for name, address in endpoints.items()
    }


def write_ready_file(path: Path, content: Mapping[str, object]) -> None:
    """Replace `path` by `content` as JSON, atomically. Raises `Invalid` if the file cannot be written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise Invalid(f"cannot write the ready file {path}: {error.strerror}") from error


def read_ready_file(path: Path) -> dict[str, object] | None:
    """Return the content that another process wrote, or None if there is none yet."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    assert isinstance(content, dict)
    return content


def since_process_start_s() -> float:
    """Return the seconds since this process was started, including the interpreter's start if the system reports it (Linux)."""
    try:
        with Path("/proc/self/stat").open(encoding="ascii") as stat:
            started_ticks = int(stat.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return time.process_time()


def banner(content: Mapping[str, object], places: Mapping[str, str], start_s: float) -> str:
    """Return the text that `bearlake up` prints once it serves; the console's address comes first."""
    console = content.get("console")
    first = [f"Open {click.style(str(console), bold=True)} in a browser: the console"] if console else []
    rows: list[tuple[str, str]] = []
    for name, address in content.items():
        if name == "console":
            continue
        if isinstance(address, str):
            protocol, colon, listener = name.partition(":")
            rows.append((f"{NAMES.get(protocol, protocol)}{colon}{listener}", address))
        elif isinstance(address, list):
            rows.append((f"{name.removesuffix('_all').capitalize()}, all", ", ".join(map(str, address))))
    rows += list(places.items())
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    head = click.style(f"Bearlake {__version__}", bold=True) + f" is up (process {os.getpid()}, {start_s:.2f} s)"
    return "\n".join([*first, "", head, "", *lines, ""])


def hidden_program() -> Path | None:
    """Return the `bearlake` beside this interpreter if a shell does not find one by its name."""
    program = Path(sys.executable).parent / "bearlake"
    return program if shutil.which("bearlake") is None and program.exists() else None


def tour_obstacle(kafka: ListenerSettings, authentication: AuthenticationSettings) -> str | None:
    """Return why the tour, which has no login and no TLS, cannot use the Kafka listener; None if it can."""
    if login_rules(kafka, authentication).is_required:
        return "clients of the Kafka listener must log in"
    return "the Kafka listener has TLS" if kafka.tls_certificate_file else None


def next_with_logins(stores: str) -> str:
    """Return what to do next where clients need a login or TLS. `stores`: the options by which commands find the stores."""
    return f"""\
Next: `bearlake user create NAME{stores}` makes a user, and `bearlake access allow` gives rights.
docs/security.md shows clients with logins and TLS.

Ctrl-C stops it.
"""


def try_next(content: Mapping[str, str], stores: str | None, program: Path | None = None) -> str:
    """Return lines to copy for a first try with common clients; `content` are the addresses as in the ready file.

    `stores`: the options by which commands find the stores. None: there are no tables. `program`: this program if a shell does not find
    it by its name; the lines then begin with one that changes that.
    """
    kafka, admin, rest, grpc = content["kafka"], content["admin"], content["rest"], content["grpc"]
    pulsar = content["pulsar"]
    is_default = kafka.endswith(":9092") and admin.startswith("http://") and admin.endswith(":9644")
    bootstrap = "" if is_default else f" --bootstrap {kafka}"
    statement = '"select _partition_id, _offset, decode(_value) as value from greetings"'
    sql = "" if stores is None else f"  bearlake sql {statement}{stores}\n"
    api = "" if is_default else f" --admin {admin}"
    path = "" if program is None else f"  export PATH={shlex.quote(str(program.parent))}:$PATH\n"
    positions = "" if rest == "http://127.0.0.1:8082" else f" --rest {rest}"
    return f"""\
Next, in another terminal:

{path}  bearlake stream create greetings{api}
  echo "hello, lake" | bearlake produce greetings{bootstrap}
  bearlake consume greetings --group readers --from-beginning --max-messages 1{bootstrap}
  bearlake group describe readers{positions}

  kcat -b {kafka} -t greetings -C -e
  kafka-console-consumer.sh --bootstrap-server {kafka} --topic greetings --from-beginning
  python -c "from confluent_kafka import Producer as P; p = P({{'bootstrap.servers': '{kafka}'}}); p.produce('greetings', b'hi'); p.flush()"
  python -c "import pulsar; c = pulsar.Client('pulsar://{pulsar}'); c.create_producer('greetings').send(b'hi'); c.close()"
  curl -H 'Content-Type: application/vnd.kafka.json.v2+json' -d '{{"records": [{{"value": "hello"}}]}}' {rest}/topics/greetings
  grpcurl -plaintext -d '{{"name": "greetings"}}' {grpc} bearlake.stream.v1.Admin/DescribeStream
  python -c "from bearlake.client import Client; print(*Client('{grpc}').read('greetings', follow=False), sep='\\n')"
{sql}
Ctrl-C stops it.
"""
