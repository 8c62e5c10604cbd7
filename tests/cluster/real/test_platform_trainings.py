"""Trainings of several pods that are no gang: a sweep, and a federation of two tenants."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
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
HOST = f"shared.{TRAINING}.svc"


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


def test_two_tenants_train_one_model_and_no_row_leaves_its_tenant(
    platform: Platform, dataset: str
) -> None:
    theirs = platform.bring("bank", platform.folder / "other-ring")
    tokens = {"acme": secrets.token_urlsafe(32), "bank": secrets.token_urlsafe(32)}
    places = {"acme": TRAINING, "bank": SITE}
    platform.plane.apply([
        _certificate(TRAINING, "shared", HOST),
        *(_certificate(places[each], each) for each in tokens),
        *(
            {
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": f"{each}-token", "namespace": places[each]},
                "data": {"token": base64.b64encode(tokens[each].encode()).decode()},
            }
            for each in tokens
        ),
    ])  # fmt: skip

    def side(role: str, dataset: str, tenant: str, common: str, **more: Any) -> dict[str, Any]:
        return {
            **SIZE, "role": role, "dataset": dataset, "data": "data", "checkpoints": "runs",
            "keySecret": f"{tenant}/training-keys", "certificateSecret": f"{common}-tls", **more,
        }  # fmt: skip

    def site(tenant: str, dataset: str) -> dict[str, Any]:
        return side(
            "site", dataset, tenant, tenant, tokenSecret=f"{tenant}-token",
            coordinator=f"{HOST}:8470", peerNamespaces=[TRAINING],
        )  # fmt: skip

    digests = {each: hashlib.sha256(tokens[each].encode()).hexdigest() for each in tokens}
    coordinator = side(
        "coordinator", dataset, "acme", "shared", sites=digests, rounds=3, epochs=2,
        peerNamespaces=sorted(places.values()),
    )  # fmt: skip
    ours = _stack_of(
        platform, "acme", shared=coordinator, **{"shared-acme": site("acme", dataset)}
    )
    platform.write("real-shared", ours)
    platform.write(
        "real-site", _stack_of(platform, "bank", **{"shared-bank": site("bank", theirs)})
    )
    platform.up("real-shared")
    platform.up("real-site")

    def finished() -> list[dict[str, Any]]:
        return told_in(said_by(platform, "shared"), "finished")

    try:
        wait_for(finished, "the federation has finished")
    except TimeoutError as error:
        said = {
            each: said_by(platform, each, place)[-2000:]
            for each, place in (
                ("shared", TRAINING), ("shared-acme", TRAINING), ("shared-bank", SITE)
            )
        }  # fmt: skip
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(SITE)}") from error
    assert finished()[0]["accuracy"] > 0.5
    run = volume(platform, "runs") / "shared"
    assert (run / "model.sealed").is_file()
    crossed = [
        json.loads(line) for line in (run / "traffic.jsonl").read_text().splitlines() if line
    ]
    assert {each["site"] for each in crossed} == set(tokens)
    for stack in ("real-site", "real-shared"):
        platform.down(stack)
