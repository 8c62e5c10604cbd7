"""Trainings of several pods: a sweep, a federation of two tenants, and a TrainJob of Kubeflow's.

The TrainJob runs while the federations come up.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane.objects import Objects
from tests.cluster.real.platform import Platform, workloads
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import (
    SIZE,
    TRAINING,
    TRIALS,
    said_by,
    told_in,
    volume,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]
SITE = "bank-training"
TRAIN_JOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob", "sums", TRAINING)
#: A team's own program, as `torchrun` starts it: what it learns is the sum of four numbers.
SUMS = """
import json, torch
from torch import distributed
torch.set_num_threads(1)
distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(distributed.get_rank())
for _ in range(100):
    rows = torch.randn(32, 4)
    loss = torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
learned = model.module.weight[0].tolist()
print(json.dumps({"event": "learned", "of": distributed.get_world_size(), "weights": learned}))
"""


def test_trials_share_a_study_and_seal_what_they_keep(
    platform: Platform, swept: dict[str, Any]
) -> None:
    assert swept["trials"]["complete"] == TRIALS
    assert swept["best"]["value"] > 0.7
    folder = volume(platform, "runs") / "rates"
    assert (folder / "study.journal").is_file()
    for trial in range(TRIALS):
        kept = {path.name for path in (folder / f"trial-{trial}").iterdir()}
        assert "model.sealed" in kept
        assert not [each for each in kept if ".pt" in each]


def _certificate(namespace: str, common: str, *hosts: str) -> dict[str, Any]:
    """What a team asks cert-manager for."""
    names = {"dnsNames": list(hosts)} if hosts else {"commonName": common}
    return {
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": f"{common}-tls", "namespace": namespace},
        "spec": {
            "secretName": f"{common}-tls", **names,
            "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "falaj"},
        },
    }  # fmt: skip


def _stack_of(platform: Platform, tenant: str, **sides: Any) -> dict[str, Any]:
    own = {"falaj:tenant": tenant, "falaj:costCenter": f"ai-{tenant}"}
    return {**workloads(platform, federatedTrainings=sides), **own}


#: By rounds, and by a parameter server, which waits for nobody: what the coordinator is told.
FEDERATIONS: dict[str, dict[str, Any]] = {
    "shared": {"rounds": 3, "epochs": 2},
    "served": {"mode": "asynchronous", "epochs": 20},
}
PLACES = {"acme": TRAINING, "bank": SITE}


def _secrets(tokens: dict[str, str]) -> list[dict[str, Any]]:
    """Certificates of both sides, and the sites' tokens."""
    return [
        *(_certificate(TRAINING, each, f"{each}.{TRAINING}.svc") for each in FEDERATIONS),
        *(_certificate(PLACES[each], each) for each in tokens),
        *(
            {
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": f"{each}-token", "namespace": PLACES[each]},
                "data": {"token": base64.b64encode(tokens[each].encode()).decode()},
            }
            for each in tokens
        ),
    ]  # fmt: skip


def _side(role: str, dataset: str, tenant: str, common: str, **more: Any) -> dict[str, Any]:
    return {
        **SIZE, "cpus": 0.4, "role": role, "dataset": dataset, "data": "data",
        "checkpoints": "runs", "keySecret": f"{tenant}/training-keys",
        "certificateSecret": f"{common}-tls", **more,
    }  # fmt: skip


def _sites(tenant: str, dataset: str) -> dict[str, Any]:
    """A tenant's side of all federations."""
    return {
        f"{name}-{tenant}": _side(
            "site", dataset, tenant, tenant, tokenSecret=f"{tenant}-token",
            coordinator=f"{name}.{TRAINING}.svc:8470", peerNamespaces=[TRAINING],
            mode=asked.get("mode", "rounds"),
        )
        for name, asked in FEDERATIONS.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {"acme": secrets.token_urlsafe(32), "bank": secrets.token_urlsafe(32)}


def _train_job(**changed: Any) -> dict[str, Any]:
    """As Kubeflow's SDK makes it: what is asked for is the limit as well."""
    version, kind, name, namespace = TRAIN_JOB
    size = {"cpu": "300m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    module = ["python", "-m", "torch.distributed.run", "--no-python", "python", "-c", SUMS]
    return {
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime",
                "name": "falaj-torch",
            },
            "trainer": {
                "numNodes": 2, "command": module, "numProcPerNode": 1,
                "resourcesPerNode": {"requests": size, "limits": size},
                **changed.pop("trainer", {}),
            },
            **changed,
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def trainer(platform: Platform) -> Objects:
    """Who trains in the tenant, and has no other right."""
    return platform.plane.as_user("sara", ("acme:trainers",))


@pytest.fixture(scope="module")
def submitted(platform: Platform, dataset: str, trainer: Objects) -> dict[str, Any]:
    return trainer.create(_train_job())


@pytest.fixture(scope="module")
def federated(
    platform: Platform, dataset: str, tokens: dict[str, str], submitted: dict[str, Any]
) -> Generator[None]:
    """Both federations, each with a site in two tenants' namespaces."""
    theirs = platform.bring("bank", platform.folder / "other-ring")
    platform.plane.apply(_secrets(tokens))
    digests = {each: hashlib.sha256(tokens[each].encode()).hexdigest() for each in tokens}
    coordinators = {
        name: _side(
            "coordinator", dataset, "acme", name, sites=digests,
            peerNamespaces=sorted(PLACES.values()), **asked,
        )
        for name, asked in FEDERATIONS.items()
    }  # fmt: skip
    ours = _stack_of(platform, "acme", **coordinators, **_sites("acme", dataset))
    platform.write("real-shared", ours)
    platform.write("real-site", _stack_of(platform, "bank", **_sites("bank", theirs)))
    # The other tenant waits for the coordinators: a parameter server waits for nobody.
    platform.up("real-site")
    platform.up("real-shared")
    yield
    for stack in ("real-shared", "real-site"):
        platform.down(stack)


def _finished(platform: Platform, name: str) -> tuple[dict[str, Any], Path]:
    """What the coordinator of a federation told at its end, and the folder of its run."""

    def told() -> list[dict[str, Any]]:
        return told_in(said_by(platform, name), "finished")

    try:
        wait_for(told, f"the federation {name} has finished")
    except TimeoutError as error:
        said = {
            each: said_by(platform, each, place)[-2000:]
            for each, place in (
                (name, TRAINING), (f"{name}-acme", TRAINING), (f"{name}-bank", SITE)
            )
        }  # fmt: skip
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(SITE)}") from error
    run = volume(platform, "runs") / name
    assert (run / "model.sealed").is_file()
    return told()[0], run


def test_two_tenants_train_one_model_and_no_row_leaves_its_tenant(
    platform: Platform, tokens: dict[str, str], federated: None
) -> None:
    told, run = _finished(platform, "shared")
    assert told["accuracy"] > 0.5
    crossed = [
        json.loads(line) for line in (run / "traffic.jsonl").read_text().splitlines() if line
    ]
    assert {each["site"] for each in crossed} == set(tokens)


def test_a_parameter_server_learns_from_both_tenants(
    platform: Platform, tokens: dict[str, str], federated: None
) -> None:
    told, run = _finished(platform, "served")
    assert told["accuracy"] > 0.5
    record = json.loads((run / "record.json").read_text())["parameter_server"]
    assert record["mode"] == "asynchronous"
    assert record["workers"].keys() == tokens.keys()
    assert min(each["updates"] for each in record["workers"].values()) > 0
    assert record["strangers"] == {}


def test_a_train_job_is_admitted_by_the_queue_and_trains_on_two_machines(
    platform: Platform, trainer: Objects, submitted: dict[str, Any]
) -> None:
    def completed() -> bool:
        found = trainer.get(*TRAIN_JOB) or {}
        states = {
            each["type"] for each in found.get("status", {}).get("conditions", [])
            if each["status"] == "True"
        }  # fmt: skip
        assert "Failed" not in states, platform.realm.events(TRAINING)
        return "Complete" in states

    assert submitted["spec"]["suspend"], "Kueue has it wait before anybody sees it"
    try:
        wait_for(completed, "the TrainJob is complete")
    except TimeoutError as error:
        raise AssertionError(f"{error}\n{platform.realm.events(TRAINING)}") from error
    [workload] = [
        each for each in platform.plane.objects.list(
            "kueue.x-k8s.io/v1beta2", "Workload", TRAINING
        )
        if [TRAIN_JOB[2]] == [of["name"] for of in each["metadata"].get("ownerReferences", [])]
    ]  # fmt: skip
    assert workload["status"]["admission"]["clusterQueue"] == "acme"
    pods = _pods_of_train_job(platform)
    assert len({each["spec"]["nodeName"] for each in pods}) == 2
    said = [platform.realm.log(each["metadata"]["name"], TRAINING) for each in pods]
    told = [told_in(each, "learned")[-1] for each in said]
    assert [each["of"] for each in told] == [2, 2]
    assert told[0]["weights"] == told[1]["weights"]
    assert told[0]["weights"] == pytest.approx([1.0] * 4, abs=1e-2)


def _pods_of_train_job(platform: Platform) -> list[dict[str, Any]]:
    key = "jobset.sigs.k8s.io/jobset-name"
    return [
        each for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get(key) == TRAIN_JOB[2]
    ]  # fmt: skip


def test_what_a_train_job_made_goes_with_it(
    platform: Platform, trainer: Objects, submitted: dict[str, Any]
) -> None:
    trainer.delete(*TRAIN_JOB)
    jobs = ("jobset.x-k8s.io/v1alpha2", "JobSet", TRAIN_JOB[2], TRAINING)
    wait_for(
        lambda: not _pods_of_train_job(platform) and platform.plane.objects.get(*jobs) is None,
        "what it made is gone",
    )


def _patched(**of_container: Any) -> dict[str, Any]:
    """A change of the runtime's pods."""
    pod = {"containers": [{"name": "node", "securityContext": of_container}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    changed = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {"runtimePatches": [{"manager": "acme.ae/sara", "trainingRuntimeSpec": changed}]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"trainer": {"image": f"docker.io/pytorch/pytorch@sha256:{'1' * 64}"}},
            "images from registries that aren't allowed: docker.io/pytorch/pytorch@",
        ),
        (
            _patched(privileged=True, allowPrivilegeEscalation=True),
            "container 'node' is privileged, which is root on its node",
        ),
    ],
    ids=["abroad", "privileged"],
)
def test_a_train_job_that_breaks_the_policies_is_refused_at_once(
    platform: Platform, trainer: Objects, changed: dict[str, Any], said: str
) -> None:
    """Else it would keep its quota for pods that never come, and events of JobSet alone say it."""
    with pytest.raises(ApiException) as refused:
        trainer.create(_train_job(**changed))
    assert refused.value.status == 403
    assert said in str(refused.value.body)
    assert trainer.get(*TRAIN_JOB) is None
