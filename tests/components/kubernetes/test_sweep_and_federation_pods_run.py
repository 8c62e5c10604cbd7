"""The rendered pods of a sweep and of a federation run as processes, as those of a job do."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from falaj.components.kubernetes import federated_training, sweep
from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.registry.keyring import KeyRing, pack
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.sweep import open_study, summary
from tests.components.kubernetes.pod_processes import Machine, finish
from tests.components.kubernetes.training_jobs import CPU, arguments, pod_of, the
from tests.ports import free_port
from tests.workloads.federation.federations import Authority

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = datasets.build(datasets.Source("digits"))
    return datasets.write(dataset, tmp_path_factory.mktemp("datasets"), None)


def _machine(folder: Path, digits: Path, **names: str) -> Machine:
    (folder / "data").mkdir(parents=True)
    (folder / "data/digits").symlink_to(digits, target_is_directory=True)
    return Machine(folder, names)


@pytest.mark.thorough
def test_two_trials_run_side_by_side_and_share_the_study(tmp_path: Path, digits: Path) -> None:
    given: Any = {
        **arguments(**{**CPU, "dataset": "digits"}, arguments=["--epochs", "2", "--threads", "1"]),
        "search": {"width": "8|16", "learning_rate": "1e-3..1e-2:log"}, "trials": 2,
    }  # fmt: skip
    template = pod_of(sweep.manifests(sweep.check("tuning", given)))
    machine = _machine(tmp_path, digits)
    assert finish([machine.start(template, index) for index in (0, 1)], 300) == [0, 0]
    study = open_study(tmp_path / "runs/tuning", digits, 0, "none")
    found = summary(study)
    assert found["trials"]["complete"] == 2
    assert set(found["best"]["parameters"]) == {"width", "learning_rate"}


@pytest.mark.thorough
def test_a_trial_reads_sealed_rows_and_seals_what_it_keeps(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    secret = tmp_path / "run/falaj/secret"
    secret.mkdir(parents=True)
    (secret / "keyring.tar").write_bytes(pack(ring))
    dataset = datasets.build(datasets.Source("digits"))
    sealed = datasets.write(dataset, tmp_path / "snapshots", ring)
    given: Any = {
        **arguments(**{**CPU, "dataset": "digits"}, arguments=["--epochs", "1", "--threads", "1"]),
        "search": {"width": "8|16"}, "trials": 1, "key_secret": "acme/training-keys",
    }  # fmt: skip
    template = pod_of(sweep.manifests(sweep.check("tuning", given)))
    machine = _machine(tmp_path, sealed)
    assert finish([machine.start(template, 0)], 300) == [0], machine.log(0).read_text()
    trial = tmp_path / "runs/tuning/trial-0"
    assert (trial / "model.sealed").exists()
    assert not list(trial.glob("*.pt*"))


def _pods(name: str, given: dict[str, Any]) -> list[Manifest]:
    args: Any = {**arguments(**{**CPU, "dataset": "digits"}), **given}
    return federated_training.manifests(federated_training.check(name, args))


class Federation:
    """A coordinator called leader and a site called dubai, each on a machine of its own."""

    def __init__(self, folder: Path) -> None:
        secret = "a-token-of-more-than-thirty-two-characters"
        shown = hashlib.sha256(secret.encode()).hexdigest()
        near = {"peer_namespaces": ["acme-training"], "certificate_secret": "tls"}
        self.folder = folder
        self._token = secret
        self._given: dict[str, dict[str, Any]] = {
            "leader": {
                **near, "role": "coordinator", "sites": {"dubai": shown}, "rounds": 1, "epochs": 1,
            },
            "dubai": {
                **near, "role": "site", "token_secret": "dubai-token",
                "coordinator": "leader.acme-training.svc:8470",
            },
        }  # fmt: skip

    def run(self, rows: Mapping[str, Path], **more: Any) -> dict[str, Machine]:
        """Both to their end, each with its rows; ``more`` arguments are of both."""
        port, authority = str(free_port()), Authority(self.folder / "pki")
        machines: dict[str, Machine] = {}
        pods: dict[str, list[Manifest]] = {}
        for name, given in self._given.items():
            machine = _machine(self.folder / name, rows[name], **{"8470": port})
            machine.names["leader.acme-training.svc"] = "127.0.0.2"
            tls = self.folder / name / "etc/falaj/tls"
            tls.mkdir(parents=True)
            for source, mounted in zip(authority.issue(name), ("tls.crt", "tls.key"), strict=True):
                shutil.copy(source, tls / mounted)
            shutil.copy(authority.certificate, tls / "ca.crt")
            machines[name], pods[name] = machine, _pods(name, {**given, **more})
        sites = the("ConfigMap", pods["leader"])["data"]["sites.json"]
        for file, text in (
            ("leader/etc/falaj/sites/sites.json", sites),
            ("dubai/etc/falaj/token/token", self._token),
        ):
            (self.folder / file).parent.mkdir()
            (self.folder / file).write_text(text, encoding="utf-8")
        processes = [machine.start(pod_of(pods[name]), 0) for name, machine in machines.items()]
        codes = finish(processes, 300)
        told = [each.log(0).read_text(encoding="utf-8") for each in machines.values()]
        assert codes == [0, 0], told
        return machines


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def test_a_coordinator_and_a_site_do_a_round(federation: Federation, digits: Path) -> None:
    federation.run({"leader": digits, "dubai": digits})
    run = federation.folder / "leader/runs/leader"
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished"


@pytest.mark.thorough
def test_each_side_reads_rows_sealed_with_its_own_ring(federation: Federation) -> None:
    dataset = datasets.build(datasets.Source("digits"))
    rows: dict[str, Path] = {}
    for name in ("leader", "dubai"):
        folder = federation.folder / name
        ring = KeyRing.create(federation.folder / f"{name}-ring")
        rows[name] = datasets.write(dataset, federation.folder / f"{name}-rows", ring)
        secret = folder / "run/falaj/secret"
        secret.mkdir(parents=True)
        (secret / "keyring.tar").write_bytes(pack(ring))
    federation.run(rows, key_secret="acme/training-keys")
    run = federation.folder / "leader/runs/leader"
    assert json.loads((run / "record.json").read_text(encoding="utf-8"))["status"] == "finished"
    assert (run / "model.sealed").exists()
    assert not list(run.glob("*.pt*"))
