"""Iceberg's REST Compatibility Kit: the catalog tests of its authors, against the Iceberg REST catalog of our server."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from conformance import packages, processes
from conformance.outcomes import Context, Outcome
from conformance.suite_junit import REPORT, read_report

POM = Path(__file__).resolve().parent / "iceberg" / "pom.xml"
CLASS = "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests"
TIMEOUT_S = 600


def run(context: Context) -> Iterator[Outcome]:
    """Run the class in one process; yields an outcome for every test that ended, or should have."""
    jars = packages.obtain_jars(POM, "iceberg-jars")
    with tempfile.TemporaryDirectory(prefix="bearlake-conformance-") as folder:
        finished = processes.run(
            [
                *("java", "-Xmx512m", "-XX:+UseSerialGC"),
                *("-Drck.local=false", f"-Duri={context.catalog}", "-Dwarehouse=bearlake"),
                *("-Drck.requires-namespace-create=true", "-cp", f"{jars}/*"),
                *("org.junit.platform.console.ConsoleLauncher", "execute", f"--select-class={CLASS}"),
                *("--reports-dir", folder, "--details", "tree", "--disable-ansi-colors", "--disable-banner"),
            ],
            log=context.logs / "iceberg.log",
            timeout_s=TIMEOUT_S,
        )
        report = Path(folder) / REPORT
        if report.is_file():
            yield from read_report(report.read_text(encoding="utf-8"), finished.log)
            return
    for test in context.selected():
        note = f"its process ended with {finished.code} (see {finished.log})"
        yield Outcome(test=test, state="fail", seconds=finished.seconds, note=note)
