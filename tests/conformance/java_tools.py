"""Start Kafka's own command line tools from the jars of Maven Central."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import packages, processes

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = f"{TOOLS}.AclCommand"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"

TIMEOUT_S = 120
SHORT_LIVED = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options for tools that run for a second: a third less CPU time than the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTools:
    """Kafka's tools against one server; their outputs go to `logs`. `client_properties` is their `--command-config`."""

    bootstrap: str
    logs: Path
    client_properties: Path | None = None

    def run(
        self,
        main: str,
        *arguments: str,
        options: Sequence[str] = SHORT_LIVED,
        stdin: bytes | None = None,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> processes.Finished:
        """Run the tool `main` (a class name) with `--bootstrap-server`, the client's properties and `arguments`."""
        server = ["--bootstrap-server", self.bootstrap]
        if self.client_properties is not None:
            server += ["--command-config", str(self.client_properties)]
        return self.run_bare(main, *server, *arguments, options=options, stdin=stdin, name=name, timeout_s=timeout_s)

    def run_bare(
        self,
        main: str,
        *arguments: str,
        options: Sequence[str] = SHORT_LIVED,
        stdin: bytes | None = None,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> processes.Finished:
        """Run `main` with exactly `arguments`; the log is called `name`, or as the class; warnings go to `NAME.err`."""
        jars = packages.obtain_kafka_jars()
        logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
        command = ["java", *options, "-Dfile.encoding=UTF-8", logging, "-cp", f"{jars}/*", main, *arguments]
        stem = name or main.rsplit(".", 1)[-1]
        self.logs.mkdir(parents=True, exist_ok=True)
        log, errors = self.logs / f"{stem}.log", self.logs / f"{stem}.err"
        return processes.run(command, log=log, timeout_s=timeout_s, stdin=stdin, errors=errors)
