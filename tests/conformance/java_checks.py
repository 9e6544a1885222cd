"""Code that the cases of the Java suite share: names, tool runs and checks of one case."""

import json
from dataclasses import dataclass

from conformance import processes
from conformance.java_tools import JavaTools


class CheckFailed(AssertionError):
    """A tool printed, or ended with, something else than any Kafka server must give."""


@dataclass(kw_only=True)
class Case:
    """One case: `name` serves as its topic and its group; runs are logged in order."""

    tools: JavaTools
    name: str
    run_count: int = 0

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

    def complaint(self, main: str, *arguments: str) -> str:
        """Run a tool that must complain, whatever its exit code; returns what it printed, errors included."""
        finished = self.run(main, *arguments)
        errors = finished.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")
        return finished.text() + errors

    def _log_name(self, main: str) -> str:
        self.run_count += 1
        return f"{self.run_count:02d}-{main.rsplit('.', 1)[-1]}"


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
