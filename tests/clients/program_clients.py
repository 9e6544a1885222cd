"""Clients that are programs: kcat, Kafka's console tools (Java), franz-go (Go), kafkajs (Node.js)."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from clients.messages import TIMEOUT_S, ClientFailed, Message, from_lines, to_lines
from clients.python_clients import ALL_COMPRESSIONS, ConfluentKafka
from conformance import packages, processes
from conformance.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, JavaTools

SOURCES = Path(__file__).resolve().parent
NULL = "<null>"
"""How the console tools spell null in the tests' text; no message contains it."""


class JsonProgram:
    """Our own program around a third-party library: `PROGRAM… BOOTSTRAP create|produce|consume …`, JSON lines in and out."""

    is_text_only = False

    def __init__(
        self,
        bootstrap: str,
        logs: Path,
        program: Sequence[str | Path],
        *,
        compressions: Sequence[str],
        has_null_headers: bool,
    ) -> None:
        self._command = [*program, bootstrap]
        self._logs = logs
        self.compressions = compressions
        self.has_null_headers = has_null_headers

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        self._run("create", topic, str(partition_count))

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write the messages to partition 0, in order. Raises `ClientFailed`."""
        self._run("produce", topic, compression, stdin=to_lines(messages))

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        return from_lines(self._run("consume", topic, group, str(count)))

    def _run(self, *arguments: str, stdin: bytes | None = None) -> str:
        return _output([*self._command, *arguments], self._logs / f"{arguments[0]}.log", stdin)


def franz_go(bootstrap: str, logs: Path) -> JsonProgram:
    """franz-go, through the small program in `franz_go/`."""
    program = packages.obtain_go_program(SOURCES / "franz_go")
    return JsonProgram(bootstrap, logs, [program], compressions=ALL_COMPRESSIONS, has_null_headers=True)


def kafkajs(bootstrap: str, logs: Path) -> JsonProgram:
    """kafkajs, through the script in `kafkajs/`; lz4 and zstd would need native add-ons."""
    directory = packages.obtain_npm_program(SOURCES / "kafkajs")
    program: list[str | Path] = ["node", directory / "client.js"]
    return JsonProgram(bootstrap, logs, program, compressions=("none", "gzip", "snappy"), has_null_headers=False)


class Kcat:
    """kcat from the Debian package; it cannot create topics, so confluent-kafka does that for it."""

    compressions = ALL_COMPRESSIONS
    is_text_only = True
    has_null_headers = True

    def __init__(self, bootstrap: str, logs: Path) -> None:
        program = packages.require("kcat", "kcat (Debian: kcat)")
        self._command = [program, "-b", bootstrap]
        self._logs = logs
        self._creator = ConfluentKafka(bootstrap)

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        self._creator.create_topic(topic, partition_count)

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """One run per series of messages with the same headers and the same meaning of an empty field."""
        for (headers, has_null), series in itertools.groupby(messages, key=lambda m: (m.headers, m.value is None)):
            lines = b"".join(_kcat_line(message) for message in series)
            options = [word for name, value in headers for word in ("-H", _kcat_header(name, value))]
            nulls = ["-Z"] if has_null else []
            arguments = ["-P", "-t", topic, "-K", "\t", "-z", compression, *nulls, *options]
            _output([*self._command, *arguments], self._logs / "produce.log", lines)

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        arguments = ["-q", "-J", "-c", str(count), "-X", "auto.offset.reset=earliest", "-G", group, topic]
        text = _output([*self._command, *arguments], self._logs / "consume.log", None)
        return [_from_kcat(json.loads(line)) for line in text.splitlines()]


class ConsoleTools:
    """Kafka's console producer and consumer, with TopicCommand: the Java client as operators use it."""

    compressions = ALL_COMPRESSIONS
    is_text_only = True
    has_null_headers = True

    def __init__(self, bootstrap: str, logs: Path) -> None:
        packages.obtain_kafka_jars()
        self._tools = JavaTools(bootstrap=bootstrap, logs=logs)

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create the topic. Raises `ClientFailed`."""
        _checked(self._tools.run(TOPICS, "--create", "--topic", topic, "--partitions", str(partition_count)))

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write the messages to partition 0, in order. Raises `ClientFailed`."""
        properties = {"parse.key": "true", "parse.headers": "true", "null.marker": NULL}
        options = [word for name, value in properties.items() for word in ("--reader-property", f"{name}={value}")]
        arguments = ["--topic", topic, "--compression-codec", compression, *options]
        lines = "".join(_console_line(message) for message in messages)
        _checked(self._tools.run(CONSOLE_PRODUCER, *arguments, stdin=lines.encode()))

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Read `count` messages as a member of `group`. Raises `ClientFailed`."""
        properties = {"print.key": "true", "print.headers": "true", "null.literal": NULL}
        options = [word for name, value in properties.items() for word in ("--formatter-property", f"{name}={value}")]
        start = ["--command-property", "auto.offset.reset=earliest"]
        limits = ["--max-messages", str(count), "--timeout-ms", str(TIMEOUT_S * 1000)]
        arguments = ["--topic", topic, "--group", group, *start, *limits, *options]
        text = _checked(self._tools.run(CONSOLE_CONSUMER, *arguments))
        return [_from_console(line) for line in text.split("\n")[:-1]]


def _output(command: Sequence[str | Path], log: Path, stdin: bytes | None) -> str:
    errors = log.with_suffix(".err")
    return _checked(processes.run(command, log=log, timeout_s=TIMEOUT_S, stdin=stdin, errors=errors))


def _checked(finished: processes.Finished) -> str:
    """The output of a program; raises ClientFailed with its error output unless it exited with code 0."""
    if finished.is_success:
        return finished.text()
    complaints = finished.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace").strip()
    raise ClientFailed(f"{finished.log.stem} ended with {finished.code}: {complaints[-1000:]}")


def _kcat_line(message: Message) -> bytes:
    """KEY TAB VALUE; a line without the delimiter has no key."""
    key = b"" if message.key is None else message.key + b"\t"
    return key + (message.value or b"") + b"\n"


def _kcat_header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _from_kcat(line: dict[str, str | list[str | None] | None]) -> Message:
    key, value, flat = line["key"], line["payload"], line.get("headers") or []
    assert not isinstance(key, list)
    assert not isinstance(value, list)
    headers = tuple((str(name), _encoded(content)) for name, content in zip(flat[::2], flat[1::2], strict=True))
    return Message(_encoded(value), _encoded(key), headers)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _console_line(message: Message) -> str:
    """HEADERS TAB KEY TAB VALUE, where HEADERS is NAME:VALUE,NAME:VALUE."""
    headers = ",".join(f"{name}:{_spelled(value)}" for name, value in message.headers) or NULL
    return f"{headers}\t{_spelled(message.key)}\t{_spelled(message.value)}\n"


def _spelled(content: bytes | None) -> str:
    return NULL if content is None else content.decode()


def _from_console(line: str) -> Message:
    headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [header.split(":", 1) for header in headers.split(",")]
    return Message(_unspelled(value), _unspelled(key), tuple((name, _unspelled(content)) for name, content in pairs))


def _unspelled(text: str) -> bytes | None:
    return None if text == NULL else text.encode()
