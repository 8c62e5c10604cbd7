"""The plan of a rehearsal, and what its command line refuses; the rest is in tests/cluster."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.components.kubernetes.addons import restore_rehearsal
from falaj.workloads.errors import WorkloadError
from falaj.workloads.restoring.plan import Plan, read
from falaj.workloads.restoring.rehearsal import SECRETS, digest_of

MADE = restore_rehearsal.plan({"namespaces": ("acme-serving",), "minutes": 30}, "velero-daily", 30)


def written(folder: Path, plan: object) -> Path:
    file = folder / "plan.json"
    file.write_text(plan if isinstance(plan, str) else json.dumps(plan), "utf-8")
    return file


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(MADE), **changes}


def test_what_the_platform_writes_is_read(tmp_path: Path) -> None:
    plan = read(written(tmp_path, MADE))
    assert isinstance(plan, Plan)
    assert plan.sources == ("restore-witness", "acme-serving")
    assert [each.name for each in plan.kinds][-1] == "statefulsets.apps"
    assert plan.kinds[-1].path("a", "b") == "/apis/apps/v1/namespaces/a/statefulsets/b"
    assert plan.kinds[0].path("a") == "/api/v1/namespaces/a/configmaps"
    assert SECRETS in [each.name for each in plan.kinds]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("{", "can't read the plan"),
        ([], "the plan has to be an object with kinds, minutes"),
        ({}, "the plan has nothing; allowed and needed: kinds, minutes"),
        (changed(more=1), "more, namespaces"),
        (changed(scratch="../default"), "given scratch '../default'"),
        (changed(scratch="a/b"), "given scratch 'a/b'"),
        (changed(namespaces=["a", "a"]), "allowed: each once"),
        (changed(namespaces=["restore-rehearsal"]), "neither restore-rehearsal nor velero"),
        (changed(namespaces=["velero"]), "neither restore-rehearsal nor velero"),
        (changed(namespaces="acme"), "given namespaces 'acme'; allowed: a list"),
        (changed(namespaces=[7]), "given namespaces 7"),
        (changed(kinds=[]), "kinds is empty"),
        (changed(kinds=[{"group": ""}]), "kinds has group; allowed and needed: group, resource"),
        (changed(kinds=[{"group": "", "version": "v1", "resource": "a/b"}]), "'a/b'"),
        (changed(witness=None), "witness has to be an object"),
        (changed(witness={**MADE["witness"], "digest": "abc"}), "given witness.digest 'abc'"),
        (changed(minutes=0), "given minutes 0; allowed: a whole number above 0"),
        (changed(minutes=True), "given minutes True"),
        (changed(recovery_point_hours="30"), "given recovery_point_hours '30'"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(tmp_path: Path, plan: object, says: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read(written(tmp_path, plan))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--server", "http://127.0.0.1:1"], "can't use the API server's address"),
        (["--server", "https://127.0.0.1:1"], "is missing: there is no file"),
        ([], "this isn't a pod of the cluster"),
    ],
)
def test_mistakes_are_said_without_a_trace(tmp_path: Path, given: list[str], says: str) -> None:
    plan = str(written(tmp_path, MADE))
    command = [sys.executable, "-m", "falaj.workloads.restoring", "rehearse", "--plan", plan]
    command += ["--authority", str(tmp_path / "none"), *given]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_digest_is_of_the_one_value() -> None:
    assert digest_of({"a": "x"}) == digest_of({"b": "x"}) != digest_of({"a": "y"})
    assert digest_of({}) == digest_of({"a": "x", "b": "x"}) == ""
