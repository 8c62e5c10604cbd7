"""Trainings of several pods that are no gang: a sweep, and a federation of two tenants."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def federated(platform: Platform, dataset: str, tokens: dict[str, str]) -> Generator[None]:
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
