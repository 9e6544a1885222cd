"""Executors as pods: Spark's properties, and the executors' command. (`tests/kube/test_kube_spark.py` shows it with an API server.)"""

from dataclasses import replace
from pathlib import Path

import pytest

from bearlake.compaction.spark import kubernetes
from bearlake.compaction.spark.pod import executor_command
from bearlake.compaction.spark.session import properties
from bearlake.compaction.spark.settings import SparkKubernetesSettings, SparkSettings
from bearlake.errors import Invalid

PODS = SparkKubernetesSettings(
    image="bearlake.dev/compactor:1",
    namespace="lake",
    pod_template_file="/etc/bearlake/settings/executor.yaml",
    executor_count=3,
    executor_core_count=2,
)
SETTINGS = SparkSettings(master="k8s://https://kubernetes.default.svc", kubernetes=PODS)
POD = {"POD_IP": "10.0.0.7", "HOSTNAME": "lake-compactor-x", "KUBERNETES_SERVICE_HOST": "10.97.0.1"}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "4",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "exec-4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_9": "--add-opens=java.base/java.net=ALL-UNNAMED",
    "SPARK_JAVA_OPT_2": "--add-modules=jdk.incubator.vector",
    "OTHER": "kept",
}


def test_a_pod_is_the_driver_of_executors_in_pods() -> None:
    found = properties(SETTINGS, POD)

    assert (
        found.items()
        >= {
            "spark.master": "k8s://https://kubernetes.default.svc",
            "spark.authenticate": "true",
            "spark.driver.host": "10.0.0.7",
            "spark.driver.bindAddress": "0.0.0.0",
            "spark.driver.port": "7078",
            "spark.driver.blockManager.port": "7079",
            "spark.kubernetes.namespace": "lake",
            "spark.kubernetes.driver.pod.name": "lake-compactor-x",
            "spark.kubernetes.container.image": "bearlake.dev/compactor:1",
            "spark.kubernetes.executor.podTemplateFile": "/etc/bearlake/settings/executor.yaml",
            "spark.kubernetes.executor.podTemplateContainerName": "executor",
            "spark.executor.instances": "3",
            "spark.executor.cores": "2",
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "1024m",
        }.items()
    )


def test_additional_properties_have_precedence() -> None:
    settings = replace(SETTINGS, conf=("spark.executor.instances=9", "spark.kubernetes.executor.request.cores=250m"))

    found = properties(settings, POD)

    assert found["spark.executor.instances"] == "9"
    assert found["spark.kubernetes.executor.request.cores"] == "250m"


def test_outside_of_a_pod_executors_have_no_owner() -> None:
    found = properties(SETTINGS, {"POD_IP": "192.0.2.1", "HOSTNAME": "laptop"})

    assert "spark.kubernetes.driver.pod.name" not in found


def test_without_kubernetes_no_pod_properties_are_set() -> None:
    assert not [name for name in properties(SparkSettings(kubernetes=PODS), POD) if "kubernetes" in name]


@pytest.mark.parametrize(
    ("pods", "environ", "missing"),
    [
        (PODS, {}, "driver_host"),
        (replace(PODS, image=""), POD, "image"),
        (replace(PODS, namespace=""), POD, "namespace"),
    ],
)
def test_properties_that_cannot_be_determined_are_required(
    pods: SparkKubernetesSettings,
    environ: dict[str, str],
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubernetes, "NAMESPACE_FILE", tmp_path / "absent")

    with pytest.raises(Invalid, match=rf"^spark\.kubernetes\.{missing}: "):
        properties(replace(SETTINGS, kubernetes=pods), environ)


def test_the_namespace_is_that_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "namespace").write_text("own")
    monkeypatch.setattr(kubernetes, "NAMESPACE_FILE", tmp_path / "namespace")

    found = properties(replace(SETTINGS, kubernetes=replace(PODS, namespace="")), POD)

    assert found["spark.kubernetes.namespace"] == "own"


def test_an_executors_pod_becomes_sparks_jvm() -> None:
    words, environment = executor_command(SparkSettings(archive=False), EXECUTOR)

    at = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert words[0].endswith("/bin/java")
    assert "-Xmx524288k" in words[:at]
    assert words[at - 5 : at - 2] == [
        "-Dspark.driver.port=7078",
        "--add-opens=java.base/java.net=ALL-UNNAMED",
        "-Dlast=1",
    ]
    assert "--add-modules=jdk.incubator.vector" not in words
    assert any("/spark-kubernetes_" in jar for jar in words[at - 1].split(":"))
    assert list(words[at + 1 :]) == [
        *("--driver-url", "spark://CoarseGrainedScheduler@10.0.0.7:7078"),
        *("--executor-id", "4"),
        *("--cores", "2"),
        *("--app-id", "spark-1"),
        *("--hostname", "10.0.0.8"),
        *("--resourceProfileId", "0"),
        *("--podName", "exec-4"),
    ]
    assert environment["OTHER"] == "kept"
    assert Path(environment["SPARK_HOME"], "jars").is_dir()


def test_classes_of_a_template_precede_ours() -> None:
    words, _ = executor_command(SparkSettings(archive=False), {**EXECUTOR, "SPARK_CLASSPATH": "/more/*"})

    assert words[words.index("-cp") + 1].startswith("/more/*:")


@pytest.mark.parametrize("name", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_MEMORY"])
def test_a_program_that_spark_did_not_start_fails_with_a_message(name: str) -> None:
    environ = {key: value for key, value in EXECUTOR.items() if key != name}

    with pytest.raises(Invalid, match=f"{name} is not set"):
        executor_command(SparkSettings(), environ)
