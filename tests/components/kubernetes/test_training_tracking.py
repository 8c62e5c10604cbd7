"""Where a job's record is sent: which way is open, who has the token, what the program is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pulumi
import pytest

from falaj.components.kubernetes import pipeline, sweep
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.training import record as records
from falaj.workloads.training import tracking
from falaj.workloads.training.command import build_parser
from falaj.workloads.training.tracking import Destination, sync
from falaj.workloads.training.tracking_store import TrackingError
from tests.components.kubernetes.training_jobs import (
    CPU,
    DIGEST,
    arguments,
    container_of,
    env_of,
    findings,
    job,
    pod_of,
    the,
)
from tests.workloads.training.tracking_server import Store, serving

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SERVER: dict[str, Any] = {
    "server": "https://mlflow.corp.internal:8443/team", "experiment": "churn",
    "cidrs": ["10.20.0.9/32"], "secret": "acme/tracking", "authority": PEM,
}  # fmt: skip
BARE: dict[str, Any] = {"server": "https://mlflow.corp.internal", "cidrs": ["10.20.0.9/32"]}
OWN: dict[str, Any] = {
    "program": ["python", "t.py"], "image": f"team/own@{DIGEST}", "dataset": None,
}  # fmt: skip


def told(manifests: list[Manifest]) -> list[str]:
    """The command of the pods."""
    return container_of(manifests)["command"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tracking": "https://mlflow.corp.internal"}, "tracking: given 'https://mlflow"),
    ({"tracking": {}}, "tracking.server: missing"),
    ({"tracking": {**BARE, "allowed_hosts": ["x"]}}, "tracking.allowed_hosts"),
    ({"tracking": {**BARE, "server": "http://mlflow.corp.internal"}}, "tracking.server: given"),
    ({"tracking": {**BARE, "server": "http://127.0.0.1"}}, "starts with https://"),
    ({"tracking": {**BARE, "server": "https://me:word@mlflow.internal"}}, "without a name or"),
    ({"tracking": {**BARE, "server": "https://mlflow.internal:99999"}}, "Port out of range"),
    ({"tracking": {**BARE, "server": "https://10.20.0.10"}}, "a host in 10.20.0.9/32"),
    ({"tracking": {**BARE, "cidrs": ["8.8.8.0/24"]}}, "allowed: private ranges"),
    ({"tracking": {**BARE, "cidrs": []}}, "at least one range"),
    ({"tracking": {"server": BARE["server"]}}, "tracking.cidrs: name where the server is"),
    ({"tracking": {**BARE, "namespace": "mlops"}}, "tracking.cidrs: name where the server is"),
    ({"tracking": {**BARE, "pod_port": 5000}}, "tracking.pod_port: is of pods in this cluster"),
    ({"tracking": {**BARE, "experiment": "a'b"}}, "1 to 200 letters"),
    ({"tracking": {**BARE, "secret": "globex/tracking"}}, "entries of the tenant: acme/"),
    ({"tracking": {**BARE, "authority": "-----BEGIN PRIVATE KEY-----"}}, "certificates in PEM"),
    (
        {"tracking": BARE, "queue": "burst", "further_regions": ["auh-1"]},
        "tracking: can't be had in queue 'burst'",
    ),
    ({"tracking": BARE, "env": {"MLFLOW_TRACKING_URI": "x"}}, "is set by tracking; leave it out"),
    ({"tracking": BARE, "arguments": ["--tracking", "https://x"]}, "have the argument tracking"),
    ({"tracking": BARE, "secret_store": "other"}, "secret_store: is where key_secret is"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[each[1] for each in REFUSED])
def test_a_server_that_nothing_may_be_sent_to(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        job(**{**CPU, **changes})
    assert reason in str(refused.value)
    assert "me:word" not in str(refused.value)


@pytest.mark.parametrize("name", ["secret", "authority"])
@pytest.mark.parametrize("given", ["", " ", 5, ["acme/tracking"]], ids=repr)
def test_what_is_no_text_is_told_once(name: str, given: Any) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        job(**{**CPU, "tracking": {**BARE, name: given}})
    [error] = refused.value.errors or ()
    assert error["property_path"] == f"tracking.{name}"
    assert "text that is not empty" in error["reason"]


@pytest.mark.parametrize("place", ["existing", "eks", "aks"])
def test_pods_reach_the_server_alone_and_have_the_token_as_a_file(place: str) -> None:
    entry = "acme--tracking" if place == "aks" else "acme/tracking"
    made = job(place, **{**CPU, "tracking": {**SERVER, "secret": entry}})
    egress = the("NetworkPolicy", made)["spec"]["egress"]
    assert egress[-1] == {
        "to": [{"ipBlock": {"cidr": "10.20.0.9/32"}}],
        "ports": [{"port": 8443, "protocol": "TCP"}],
    }
    assert len(egress) == len(the("NetworkPolicy", job(place, **CPU))["spec"]["egress"]) + 1
    secret, authority = the("ExternalSecret", made), the("ConfigMap", made)
    assert secret["spec"]["data"][0]["remoteRef"]["key"] == entry
    assert authority["data"] == {"authority.pem": PEM}
    (volume,) = [each for each in pod_of(made)["spec"]["volumes"] if each["name"] == "tracking"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": secret["metadata"]["name"]}},
        {"configMap": {"name": authority["metadata"]["name"]}},
    ]
    options = build_parser().parse_args(told(made)[3:])
    destination = tracking.of_options(options)
    assert destination == Destination(
        SERVER["server"], "churn", Path("/run/falaj/tracking/token"),
        Path("/run/falaj/tracking/authority.pem"),
    )  # fmt: skip
    assert findings(made) == []


def test_a_server_in_the_cluster_is_reached_by_its_pods() -> None:
    inside = {"server": "https://mlflow.mlops.svc", "namespace": "mlops"}
    for more, port in (({}, 443), ({"pod_port": 5000}, 5000)):
        made = job(**CPU, tracking={**inside, **more})
        names = {"kubernetes.io/metadata.name": "mlops"}
        assert the("NetworkPolicy", made)["spec"]["egress"][-1] == {
            "to": [{"namespaceSelector": {"matchLabels": names}}],
            "ports": [{"port": port, "protocol": "TCP"}],
        }
        assert not [each for each in made if each["kind"] in ("ExternalSecret", "ConfigMap")]
        assert "tracking" not in str(pod_of(made)["spec"]["volumes"])


def test_a_program_of_a_teams_own_has_mlflows_variables() -> None:
    made = job(**{**CPU, **OWN, "tracking": SERVER, "secret_store": "other"})
    assert told(made) == OWN["program"]
    env = env_of(made)
    assert {key: value for key, value in env.items() if "TRACKING" in key or "MLFLOW" in key} == {
        "MLFLOW_TRACKING_URI": SERVER["server"],
        "MLFLOW_EXPERIMENT_NAME": "churn",
        "MLFLOW_TRACKING_SERVER_CERT_PATH": "/run/falaj/tracking/authority.pem",
        "FALAJ_TRACKING_SECRET": "/run/falaj/tracking/token",
    }
    assert the("ExternalSecret", made)["spec"]["secretStoreRef"]["name"] == "other"
    assert "MLFLOW_TRACKING_URI" not in env_of(job(**CPU, tracking=SERVER))


def test_trials_of_a_sweep_are_sent_each_by_itself() -> None:
    given = {**arguments(**CPU), "search": {"width": "8|16"}, "tracking": SERVER}
    made = sweep.manifests(sweep.check("rates", given))  # pyright: ignore[reportArgumentType]
    assert the("NetworkPolicy", made)["spec"]["egress"][-1]["ports"] == [
        {"port": 8443, "protocol": "TCP"}
    ]
    assert the("ExternalSecret", made)["metadata"]["name"] == "rates-tracking"
    mounts = container_of(made)["volumeMounts"]
    assert {"name": "tracking", "mountPath": "/run/falaj/tracking", "readOnly": True} in mounts
    options = build_parser().parse_args(told(made)[3:])
    options = build_parser().parse_args(["run", "--dataset", "d", "--output", "o",
                                         *options.run_options])  # fmt: skip
    destination = tracking.of_options(options)
    assert destination is not None
    assert (destination.url, destination.experiment) == (SERVER["server"], "churn")
    assert findings(made) == []
    with pytest.raises(pulumi.InputPropertiesError, match=r"tracking\.cidrs: name where"):
        sweep.check("rates", {**given, "tracking": {"server": BARE["server"]}})  # pyright: ignore[reportArgumentType]


def test_runs_of_a_pipeline_are_sent_each_under_its_own_folder() -> None:
    given = arguments(**{
        **CPU, "tracking": BARE, "control_plane_cidrs": ["10.60.0.0/24"], "on_up": True,
        "key_secret": "acme/training-keys",
        "publish": {
            "model": "fraud", "key_secret": "acme/publishing-keys",
            "registry_cidrs": ["10.20.0.5/32"],
        },
        "images": {"falaj-training-cpu": DIGEST, "falaj-inference": DIGEST},
    })  # fmt: skip
    made = pipeline.manifests(pipeline.check("fraud", given))
    (template,) = [each for each in made if each["kind"] == "JobSet"]
    node = template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    command = node["spec"]["containers"][0]["command"]
    at = command.index("--tracking")
    assert command[at + 1] == BARE["server"]
    assert "/runs/$(FALAJ_RUN)" in command
    ways = [
        each["spec"]["egress"] for each in made
        if each["kind"] == "NetworkPolicy" and "10.20.0.9/32" in str(each)
    ]  # fmt: skip
    assert len(ways) == 1


def test_a_token_that_the_cluster_handed_over_is_read_and_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kubelet lays it: a link to a file of root's that the pod's group reads."""
    output, (first, second) = tmp_path / "run", (tmp_path / "1", tmp_path / "2")
    output.mkdir()
    records.begin(output, "1d" * 32, {"epochs": 2}, "ab" * 32)
    for folder, word in ((first, "one"), (second, "two")):
        folder.mkdir()
        (folder / "token").write_text(word)
        (folder / "token").chmod(0o440)
    (tmp_path / "..data").symlink_to(first)
    token = tmp_path / "token"
    token.symlink_to(Path("..data/token"))
    store = Store()
    with serving(store) as url:
        destination = Destination(url, secret=token)
        with pytest.raises(TrackingError, match="must be an ordinary file"):
            sync(output, destination)
        real = Path.stat

        def of_root(path: Path, **how: Any) -> os.stat_result:
            found = real(path, **how)
            return os.stat_result((*found[:4], 0, *found[5:])) if path == token else found

        monkeypatch.setattr(Path, "stat", of_root)
        monkeypatch.setattr(os, "geteuid", lambda: 65532)
        sync(output, destination)
        (tmp_path / "..data").unlink()
        (tmp_path / "..data").symlink_to(second)
        records.add_metrics(output, {"epoch": 1, "loss": 1.0, "seconds": 1.5})
        sync(output, destination)
        (second / "token").chmod(0o444)
        with pytest.raises(TrackingError, match="must be an ordinary file"):
            sync(output, destination, tracking.FAILED)
    assert list(dict.fromkeys(store.authorizations)) == ["Bearer one", "Bearer two"]
