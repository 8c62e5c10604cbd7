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


def _machine(folder: Path, digits: Path, **names: str) -> Machine:
    (folder / "data").mkdir(parents=True)
    (folder / "data/digits").symlink_to(digits, target_is_directory=True)
    return Machine(folder, names)


def _sealed(folder: Path, machine: Path) -> Path:
    """The digits, sealed with a key ring of their own that the machine has as a secret."""
    ring = KeyRing.create(folder / "ring")
    secret = machine / "run/falaj/secret"
    secret.mkdir(parents=True)
    (secret / "keyring.tar").write_bytes(pack(ring))
    return datasets.write(datasets.build(datasets.Source("digits")), folder / "rows", ring)


@pytest.mark.thorough
def test_two_trials_read_sealed_rows_and_share_a_study(tmp_path: Path) -> None:
    given: Any = {
        **arguments(**{**CPU, "dataset": "digits"}, arguments=["--epochs", "2", "--threads", "1"]),
        "search": {"width": "8|16", "learning_rate": "1e-3..1e-2:log"}, "trials": 2,
        "key_secret": "acme/training-keys",
    }  # fmt: skip
    template = pod_of(sweep.manifests(sweep.check("tuning", given)))
    rows = _sealed(tmp_path, tmp_path)
    machine = _machine(tmp_path, rows)
    processes = [machine.start(template, index) for index in (0, 1)]
    assert finish(processes, 300) == [0, 0], machine.log(0).read_text()
    study = open_study(tmp_path / "runs/tuning", rows, 0, "none")
    found = summary(study)
    assert found["trials"]["complete"] == 2
    assert set(found["best"]["parameters"]) == {"width", "learning_rate"}
    for index in (0, 1):
        trial = tmp_path / f"runs/tuning/trial-{index}"
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


@pytest.mark.thorough
def test_a_coordinator_and_a_site_do_a_round_on_rows_sealed_with_their_own_rings(
    tmp_path: Path,
) -> None:
    names = ("leader", "dubai")
    rows = {name: _sealed(tmp_path / f"of-{name}", tmp_path / name) for name in names}
    Federation(tmp_path).run(rows, key_secret="acme/training-keys")
    run = tmp_path / "leader/runs/leader"
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished"
    assert (run / "model.sealed").exists()
    assert not list(run.glob("*.pt*"))
