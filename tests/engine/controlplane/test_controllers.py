"""How the control plane's programs are started, and Kueue, JobSet and Trainer on loopback."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from falaj.engine.controlplane.controllers import (
    PORTS,
    Controller,
    certificates,
    certificates_folder,
    configuration,
    known,
    localised,
    merged,
)
from falaj.engine.controlplane.objects import wait_for
from falaj.engine.controlplane.processes import (
    Files,
    Ports,
    Supervisor,
    api_server,
    controller_manager,
)

CONTROLLERS = known(list(range(1, PORTS + 1)))
keys = st.sampled_from("abc")
trees = st.recursive(st.integers(), lambda below: st.dictionaries(keys, below, max_size=3))
maps = st.dictionaries(keys, trees, max_size=3)


@given(maps, maps)
def test_what_is_needed_wins_and_what_was_given_stays(
    given: dict[str, Any], needed: dict[str, Any]
) -> None:
    before = repr((given, needed))
    result = merged(given, needed)
    assert merged(result, needed) == result
    assert result.keys() == given.keys() | needed.keys()
    for key in given.keys() - needed.keys():
        assert result[key] == given[key]
    for key, value in needed.items():
        if not isinstance(value, dict):
            assert result[key] == value
    assert repr((given, needed)) == before


def test_a_platforms_configuration_of_kueue_is_kept_but_for_its_addresses(tmp_path: Path) -> None:
    given = {
        "manageJobsWithoutQueueName": True,
        "waitForPodsReady": {"timeout": "60s"},
        "webhook": {"port": 9443},
        "health": {"healthProbeBindAddress": ":8081", "readinessEndpointName": "readyz"},
        "internalCertManagement": {"enable": False},
    }
    found = configuration(CONTROLLERS["kueue"], given, tmp_path)
    assert found["manageJobsWithoutQueueName"] is True
    assert found["waitForPodsReady"] == {"timeout": "60s"}
    assert found["webhook"] == {"host": "127.0.0.1", "port": 1, "certDir": str(tmp_path)}
    assert found["health"] == {
        "healthProbeBindAddress": "127.0.0.1:2", "readinessEndpointName": "readyz",
    }  # fmt: skip
    # Without its own certificates Kueue would read a folder that only root can make.
    assert found["internalCertManagement"]["enable"] is True


@pytest.mark.parametrize("name", CONTROLLERS)
def test_no_two_listen_at_one_port(name: str, tmp_path: Path) -> None:
    ports = [
        port
        for each in CONTROLLERS.values()
        for port in (each.webhook_port, each.health_port, each.status_port)
        if port
    ]
    assert len(ports) == len(set(ports)) == PORTS
    found = configuration(CONTROLLERS[name], {}, tmp_path)
    assert found["leaderElection"] == {"leaderElect": False}
    assert found["metrics"] == {"bindAddress": "0"}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_webhooks_certificate_is_good_for_a_cluster_and_for_loopback(
    name: str, tmp_path: Path
) -> None:
    secret = certificates(CONTROLLERS[name], Files(tmp_path))
    folder = certificates_folder(CONTROLLERS[name], Files(tmp_path))
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [CONTROLLERS[name].service]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert base64.b64decode(secret["data"]["tls.crt"]) == (folder / "tls.crt").read_bytes()
    # Kueue makes new ones when they end within 90 days.
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days > 90


def _webhooks(group: str, resource: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mutating-webhook-configuration"},
        "webhooks": [
            {
                "name": "m.kb.io",
                "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/mutate"}},
                "rules": [{"apiGroups": [group], "resources": [resource]}],
            }
        ],
    }


def _only(controller: Controller, group: str, resource: str) -> dict[str, Any]:
    given = _webhooks(group, resource)
    found = localised(controller, [given], b"authority")[0]
    assert "service" in given["webhooks"][0]["clientConfig"]  # the vendor's stays as it is
    assert found["metadata"]["name"] == f"{controller.name}-mutating-webhook-configuration"
    return found["webhooks"][0]


def test_webhooks_are_called_on_loopback() -> None:
    webhook = _only(CONTROLLERS["kueue"], "batch", "jobs")
    assert webhook["clientConfig"] == {
        "url": "https://127.0.0.1:1/mutate",
        "caBundle": base64.b64encode(b"authority").decode(),
    }


def test_webhooks_leave_alone_what_the_vendor_leaves_alone() -> None:
    kueue, jobset = CONTROLLERS["kueue"], CONTROLLERS["jobset"]
    assert "kube-system" in str(_only(kueue, "", "pods")["namespaceSelector"])
    assert "namespaceSelector" not in _only(kueue, "kueue.x-k8s.io", "workloads")
    assert "jobset-name" in str(_only(jobset, "", "pods")["objectSelector"])
    assert "objectSelector" not in _only(jobset, "jobset.x-k8s.io", "jobsets")


def test_definitions_with_several_versions_are_converted_by_kueue() -> None:
    definition = {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {},
    }
    found = localised(CONTROLLERS["kueue"], [definition], b"authority")[0]["spec"]["conversion"]
    assert found["webhook"]["clientConfig"]["url"] == "https://127.0.0.1:1/convert"
    other = {**definition, "metadata": {"name": "topologies.kueue.x-k8s.io"}}
    assert "conversion" not in localised(CONTROLLERS["kueue"], [other], b"")[0]["spec"]


def test_programs_collect_garbage_less_often_within_a_limit(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start("env", ["/usr/bin/env"])
    wait_for(lambda: supervisor.has_ended("env"), "its end")
    said = supervisor.last_words("env").splitlines()
    supervisor.stop()
    assert {"GOGC=300", "GOMEMLIMIT=2GiB"} <= set(said)


def test_every_controller_runs_but_the_one_that_nothing_asks_for() -> None:
    line = controller_manager(Path("x"), Files(Path("f")), Ports(1, 2, 3, 4, 5, 6))
    assert "--controllers=*,-validatingadmissionpolicy-status-controller" in line


def test_the_api_server_is_closed_as_on_premises_clusters_are() -> None:
    line = api_server(Path("x"), Files(Path("f")), Ports(1, 2, 3, 4, 5, 6), webhooks=True)
    assert {
        "--anonymous-auth=false", "--authorization-mode=Node,RBAC", "--bind-address=127.0.0.1",
        "--tls-min-version=VersionTLS13",
    } <= set(line)  # fmt: skip
    for option in ("--encryption-provider-config=", "--audit-policy-file=", "--client-ca-file="):
        assert any(part.startswith(option) for part in line)
    assert not any("disable-admission" in part for part in line)
    bare = api_server(Path("x"), Files(Path("f")), Ports(1, 2, 3, 4, 5, 6), webhooks=False)
    assert [part for part in bare if "disable-admission" in part] == [
        "--disable-admission-plugins=MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
    ]
