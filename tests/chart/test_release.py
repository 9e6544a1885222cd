"""The workflows: they build the images that the chart installs, run the commands of the docs, and pin third-party actions."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.chart import CHART
from fixtures.kubernetes import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yaml"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
DOCS = (REPOSITORY / "docs/kubernetes.md").read_text()


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / f".github/workflows/{name}.yaml").read_text())
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


def chart_images() -> set[str]:
    return {
        VALUES["image"]["repository"],
        VALUES["compactorImage"]["repository"],
        VALUES["operator"]["image"]["repository"],
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_third_party_actions_are_pinned_by_their_hash(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())

    assert used
    for program, comment in used:
        if not program.startswith("./"):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", program), program
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), program


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_a_time_limit_and_minimal_permissions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())

    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 120, name
        assert set(job.get("permissions", {})) <= {"contents", "id-token"}, name
    for step in steps(workflow):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_the_built_images_are_those_that_the_chart_installs() -> None:
    workflow = read("release")
    registry = workflow["env"]["REGISTRY"]
    built = {f"{registry}/{image}" for image in workflow["jobs"]["images"]["strategy"]["matrix"]["image"]}
    signed = {f"{registry}/{image}" for image in workflow["jobs"]["index"]["strategy"]["matrix"]["image"]}

    assert built == signed == chart_images()


def test_images_are_stages_of_their_dockerfiles() -> None:
    matrix = read("release")["jobs"]["images"]["strategy"]["matrix"]
    dockerfiles = {entry["image"]: entry["dockerfile"] for entry in matrix["include"] if "image" in entry}

    assert set(dockerfiles) == set(matrix["image"])
    for image, dockerfile in dockerfiles.items():
        assert re.search(rf"^FROM \S+ AS {image}$", (REPOSITORY / dockerfile).read_text(), re.MULTILINE)


def test_images_have_an_sbom_a_provenance_and_a_signature() -> None:
    workflow = read("release")
    (build,) = [step for step in steps(workflow) if "docker/build-push-action" in step.get("uses", "")]
    programs = "\n".join(step.get("run", "") for step in steps(workflow))

    assert (build["with"]["sbom"], build["with"]["provenance"]) == (True, "mode=max")
    assert "cosign sign --yes --recursive" in programs
    for name in ("index", "chart", "release"):
        assert workflow["jobs"][name]["permissions"]["id-token"] == "write"


def test_a_release_requires_the_tests_and_has_one_version() -> None:
    jobs = read("release")["jobs"]
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    for name, job in jobs.items():
        if name not in ("tests", "version"):
            assert "version" in job["needs"], name
            assert "tests" in job["needs"] or {"images", "index", "chart"} & set(job["needs"]), name
    assert version == chart["version"] == chart["appVersion"]
    # The lines that the job `version` looks for.
    assert f'version = "{version}"' in (REPOSITORY / "pyproject.toml").read_text().splitlines()
    lines = (CHART / "Chart.yaml").read_text().splitlines()
    assert {f"version: {version}", f"appVersion: {version}"} <= set(lines)


def test_the_quickstart_job_runs_the_commands_of_the_docs() -> None:
    programs = "\n".join(step.get("run", "") for step in read("ci")["jobs"]["quickstart"]["steps"])
    commands = [
        line
        for line in programs.splitlines()
        if not line.startswith(("kubectl get", "kubectl describe", "kubectl logs"))
    ]
    shown = {line.strip() for line in DOCS.splitlines()}

    assert len(commands) >= 8
    assert [command for command in commands if command not in shown] == []


def test_docs_and_workflows_name_the_images_of_this_version() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    wanted = {f"{image}:{version}" for image in chart_images()}

    for text in (DOCS, (REPOSITORY / ".github/workflows/ci.yaml").read_text()):
        assert set(re.findall(r"bearlake\.dev/(?:server|compactor|operator):[\w.]+", text)) == wanted
