"""The metrics API in the chart: rendered objects and rejected values. (Tests that need a cluster are in tests/kube.)"""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from fixtures.kubernetes import REPOSITORY, STATE
from fixtures.waiting import WAIT_S

ON = "metricsApi.enabled=true"
BUILTIN = "dataLayers.default.tiers.kafka.autoscaling.mode=builtin"
WORKERS = "dataLayers.default.tiers.compactor.autoscaling.mode=builtin"


@pytest.fixture(scope="module")
def helm() -> str:
    found = shutil.which("helm") or str(STATE / "bin/helm")
    if not Path(found).exists():
        pytest.skip("needs helm: on PATH, or made by `tests/kube/cluster/cluster.py build`")
    return found


def template(helm: str, *values: str) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "lake", str(REPOSITORY / "charts/bearlake"), "-n", "bearlake"]
    for value in ("quickstart.enabled=true", "crds.install=false", *values):
        command += ["--set", value]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


def objects(helm: str, *values: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = template(helm, *values)
    assert done.returncode == 0, done.stderr
    found = [resource for resource in yaml.safe_load_all(done.stdout) if resource]
    return {(resource["kind"], resource["metadata"]["name"]): resource for resource in found}


def test_the_metrics_api_is_not_installed_by_default(helm: str) -> None:
    assert [name for name in objects(helm) if "metrics-api" in name[1] or name[0] == "APIService"] == []


def test_the_api_service_trusts_the_generated_certificate(helm: str) -> None:
    found = objects(helm, ON)
    secret = found["Secret", "lake-metrics-api"]["data"]
    authority, certificate = (
        x509.load_pem_x509_certificate(base64.b64decode(secret[name])) for name in ("ca.crt", "tls.crt")
    )

    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["lake-metrics-api.bearlake.svc"]
    for service in ("v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
        spec = found["APIService", service]["spec"]
        assert spec["caBundle"] == secret["ca.crt"]
        assert spec["service"] == {"name": "lake-metrics-api", "namespace": "bearlake", "port": 443}
        assert "insecureSkipTLSVerify" not in spec


def test_its_role_allows_listing_pods_only(helm: str) -> None:
    found = objects(helm, ON)

    assert found["Role", "lake-metrics-api"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    subject = {"kind": "ServiceAccount", "name": "lake-metrics-api", "namespace": "bearlake"}
    bound = {
        (name, resource["roleRef"]["name"])
        for (kind, name), resource in found.items()
        if kind.endswith("RoleBinding") and subject in resource["subjects"]
    }
    assert bound == {
        ("lake-metrics-api", "lake-metrics-api"),
        ("bearlake-lake-metrics-api", "extension-apiserver-authentication-reader"),
    }


def test_its_pods_have_the_restricted_profile(helm: str) -> None:
    spec = objects(helm, ON)["Deployment", "lake-metrics-api"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


def test_each_of_the_two_apis_can_be_disabled(helm: str) -> None:
    found = objects(helm, ON, "metricsApi.external=false")

    assert [name for kind, name in found if kind == "APIService"] == ["v1beta2.custom.metrics.k8s.io"]


def test_an_existing_certificate_can_be_used(helm: str) -> None:
    annotation = "metricsApi.tls.apiServiceAnnotations.cert-manager\\.io/inject-ca-from=bearlake/metrics"
    found = objects(helm, ON, "metricsApi.tls.secret=own", annotation)
    service = found["APIService", "v1beta2.custom.metrics.k8s.io"]

    assert ("Secret", "lake-metrics-api") not in found
    assert service["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "bearlake/metrics"}
    assert "caBundle" not in service["spec"]
    volumes = found["Deployment", "lake-metrics-api"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "certificates", "secret": {"secretName": "own"}} in volumes


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            (BUILTIN,),
            "kafka.autoscaling: mode builtin needs metricsApi.enabled=true and metricsApi.custom=true",
        ),
        ((ON, "metricsApi.custom=false", BUILTIN), "metricsApi.custom=true"),
        ((ON, "metricsApi.external=false", WORKERS), "metricsApi.external=true"),
        ((ON, "metricsApi.tls.secret=own"), "metricsApi.tls.caBundle"),
        ((ON, "metricsApi.replica=1"), "additional properties 'replica' not allowed"),
    ],
)
def test_contradicting_values_are_rejected_with_a_message(helm: str, values: tuple[str, ...], problem: str) -> None:
    done = template(helm, *values)

    assert done.returncode != 0
    assert problem in done.stderr
