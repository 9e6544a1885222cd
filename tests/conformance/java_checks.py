"""Code that the cases of the Java suite share: names, tool runs and checks of one case."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from conformance import processes
from conformance.java_tools import ACLS, JavaTools


class CheckFailed(AssertionError):
    """A tool's output or exit code is not the one that every Kafka server must cause."""


@dataclass(kw_only=True)
class Case:
    """One case: `name` serves as its topic and its group; runs are logged in order.

    Clients of the listener `sasl_bootstrap` log in; it is empty if the server has none.
    """

    tools: JavaTools
    name: str
    sasl_bootstrap: str = ""
    run_count: int = 0
    views: dict[str, "Case"] = field(default_factory=dict)

    def user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> "Case":
        """The same case with tools that log in.

        Raises:
            CheckFailed: the server has no listener for logins.
        """
        check(bool(self.sasl_bootstrap), "the server has no listener for SASL: --sasl-bootstrap")
        logs = self.tools.logs / f"{name}-{mechanism}-{len(self.views)}"
        view = self.views.setdefault(f"{name} {password} {mechanism}", replace(self, run_count=0, views={}))
        if view.tools is self.tools:
            logs.mkdir(parents=True, exist_ok=True)
            properties = logs / "client.properties"
            properties.write_text(_login_properties(name, password, mechanism), encoding="utf-8")
            view.tools = JavaTools(bootstrap=self.sasl_bootstrap, logs=logs, client_properties=properties)
        return view

    def run(self, main: str, *arguments: str) -> processes.Finished:
        """Run a tool with `--bootstrap-server`; its log is called after its class and position."""
        return self.tools.run(main, *arguments, name=self._log_name(main))

    def succeed(self, main: str, *arguments: str) -> str:
        """Run a tool that must end with code 0; returns what it printed."""
        finished = self.run(main, *arguments)
        if not finished.is_success:
            shown = " ".join(arguments)
            raise CheckFailed(f"{main.rsplit('.', 1)[-1]} {shown} ended with {finished.code}: {finished.tail()}")
        return finished.text()

    def complaint(self, main: str, *arguments: str, stdin: bytes | None = None) -> str:
        """Run a tool that may report errors, whatever its exit code; returns what it printed, errors included."""
        finished = self.tools.run(main, *arguments, stdin=stdin, name=self._log_name(main))
        errors = finished.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        return finished.text() + errors

    def _log_name(self, main: str) -> str:
        self.run_count += 1
        return f"{self.run_count:02d}-{main.rsplit('.', 1)[-1]}"


@contextmanager
def closed_cluster(case: Case) -> Iterator[None]:
    """Give the cluster a rule for another user during the block, so that users without rules may not administer it.

    Without a rule, Apache Kafka opens the cluster to everybody (`allow.everyone.if.no.acl.found`); Bearlake never does.
    """
    rule = ["--allow-principal", "User:other", "--operation", "All", "--cluster"]
    case.succeed(ACLS, "--add", *rule)
    try:
        yield
    finally:
        case.succeed(ACLS, "--remove", "--force", *rule)


def _login_properties(name: str, password: str, mechanism: str) -> str:
    """Client properties for a login over SASL without TLS. The client fails after seconds instead of minutes."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'org.apache.kafka.common.security.{module} required username="{name}" password="{password}";'
    if mechanism == "OAUTHBEARER":
        module = "oauthbearer.OAuthBearerLoginModule"
        login = f'org.apache.kafka.common.security.{module} required unsecuredLoginStringClaim_sub="{name}";'
    rows = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
        "default.api.timeout.ms": "30000",
        "delivery.timeout.ms": "30000",
        "request.timeout.ms": "15000",
    }
    return "".join(f"{key}={value}\n" for key, value in rows.items())


def check(is_true: bool, text: str) -> None:
    """Raise `CheckFailed(text)` unless `is_true`."""
    if not is_true:
        raise CheckFailed(text)


def contains(output: str, *wanted: str) -> None:
    """Check that every one of `wanted` occurs in `output`."""
    missing = [text for text in wanted if text not in output]
    check(not missing, f"{missing} not in: {' | '.join(output.split(chr(10)))[:400]}")


def events(output: str, name: str) -> list[dict[str, object]]:
    """The JSON lines of a Verifiable… tool whose "name" is `name`."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("name") == name]


def columns(output: str, first: str) -> list[list[str]]:
    """The words of every line whose first word is `first`: the rows of a table about one group or topic."""
    rows = [line.split() for line in output.splitlines()]
    return [row for row in rows if row and row[0] == first]
