"""Asks engines questions about tables: a process of `live_engines.py` for each engine, and `bearlake sql`."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.freshness import LakeServer
from bench.live_engines import statement_of

HERE = Path(__file__).resolve().parent
READ_TIMEOUT_S = 240.0
Ask = Callable[[dict[str, Any]], list[list[Any]]]


class Engine:
    """A process of `live_engines.py`."""

    def __init__(self, python: str, engine: str, url: str, jars: str = "") -> None:
        """`python`: the interpreter that has the engine. `url`: the catalog. `jars`: Spark's, separated by commas."""
        self._process = subprocess.Popen(
            [python, str(HERE / "live_engines.py"), engine, url, jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, question: dict[str, Any]) -> list[list[Any]]:
        """Ask the engine. Raises BenchError if it cannot answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '"the engine has ended"')
        if isinstance(answer, str):
            raise BenchError(answer)
        found: list[list[Any]] = answer
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def sql_reader(server: LakeServer) -> Ask:
    """Read with `bearlake sql`."""

    def ask(question: dict[str, Any]) -> list[list[Any]]:
        """Run the statement in a process of its own."""
        table = question["table"].rpartition(".")[2]
        statement = statement_of(question | {"warehouse": "", "table": table})
        words = [server.command, "sql", statement, "--json", "--data-dir", str(server.data)]
        done = subprocess.run(words, capture_output=True, timeout=READ_TIMEOUT_S, check=False)
        if done.returncode:
            raise BenchError(done.stderr.decode()[-300:])
        return [list(row.values()) for row in json.loads(done.stdout)]

    return ask
