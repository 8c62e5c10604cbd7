"""``falaj images`` as people type it: what it prints, what it refuses, its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from falaj.components.kubernetes import bill_of_materials
from falaj.components.kubernetes.bill_of_materials import Image
from falaj.policies.model import Settings
from falaj.stacks.command.__main__ import main
from falaj.stacks.errors import StackError
from falaj.stacks.images import items
from falaj.stacks.images.build import ROOT
from falaj.stacks.images.crane import require_in_country
from tests.stacks.images.registries import Registry

LOCKED = "sha256:" + "1" * 64


def run(*arguments: str) -> int:
    return main(["images", *arguments])


def test_every_image_and_chart_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    names = {*bill_of_materials.images(), *bill_of_materials.charts()}
    assert {each["name"] for each in found} == names
    assert run("list") == 0
    told = capsys.readouterr().out
    assert all(name in told for name in names)
    assert "unknown" in told


def test_digests_of_the_lock_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock.yaml"
    entry = {"reference": "r", "digest": LOCKED, "seen": "2026-11-21"}
    lock.write_text(yaml.safe_dump({"images": {"kueue": entry}}))
    assert run("list", "kueue", "--format", "json", "--lock", str(lock)) == 0
    images = [each for each in json.loads(capsys.readouterr().out) if each["kind"] == "image"]
    assert [each["digest"] for each in images] == [LOCKED]


def test_the_lock_of_a_stack_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    entry = {"reference": "r", "digest": LOCKED, "seen": "2026-11-21"}
    (tmp_path / "digests.yaml").write_text(yaml.safe_dump({"images": {"kueue": entry}}))
    site = yaml.safe_load((ROOT / "stacks" / "Pulumi.onprem-cluster.yaml").read_text())
    site["config"]["falaj:images"] = "digests.yaml"
    del site["config"]["falaj:policies"]["waivers"]  # a file beside the shipped stack
    (tmp_path / "Pulumi.site.yaml").write_text(yaml.safe_dump(site))
    arguments = ["--project", str(tmp_path), "--stack", "site", "--format", "json"]
    assert run("list", "kueue", *arguments) == 0
    assert LOCKED in capsys.readouterr().out
    (tmp_path / "digests.yaml").unlink()
    assert run("list", *arguments) == 2
    assert "there is no lock file" in capsys.readouterr().err


def test_repositories_are_listed_for_registries_that_make_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("list", "--used-by", "kueue", "--repositories") == 0
    assert capsys.readouterr().out.split() == ["charts/kueue", "registry.k8s.io/kueue/kueue"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "kueu"], "did you mean kueue"),
        (["list", "--used-by", "nobody-at-all"], "is not in the bill of materials"),
        (["list", "--lock", "missing.yaml"], "there is no lock file missing.yaml"),
        (["mirror", "--to", "ghcr.io/somebody"], "images are kept in the country"),
        (
            ["mirror", "--to", "1.dkr.ecr.us-east-1.amazonaws.com"],
            "images are kept in the country",
        ),
        (["mirror", "--to", "https://registry.example.ae"], "without https://"),
        (["pin", "--registry", "docker.io"], "images are kept in the country"),
        (["load", "--archive", "nowhere", "--to", "127.0.0.1:1"], "nowhere is no archive"),
        (["load", "--archive", "nowhere", "--to", "ghcr.io"], "images are kept in the country"),
        (["rewrite", "--to", "127.0.0.1:1", "missing.yaml"], "missing.yaml cannot be read"),
        (["build", "triton"], "isn't built here; allowed: falaj-inference"),
        (["build", "falaj-workspace", "--openvino"], "allowed with falaj-inference"),
        (["mirror", "--to", "registry.example.ae", "--stack", "nobody"], "Pulumi.nobody.yaml"),
    ],
)
def test_mistakes_are_refused_with_what_to_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no digest of"),
        (["--base", "base-build"], "allowed: NAME=REFERENCE"),
        (["--base", "kueue=localhost/x"], "with NAME one of base-build"),
        (["--base", "base-build=python:3.11"], "a tag may be moved"),
    ],
)
def test_bases_are_given_with_digests(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "buildah").write_text("#!/bin/sh\n")
    (tmp_path / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("build", "falaj-inference", *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "registry",
    [
        "127.0.0.1:5000", "localhost:5000/falaj", "[::1]:5000", "registry.example.ae/falaj/x",
        "123456789012.dkr.ecr.me-central-1.amazonaws.com", "falaj.azurecr.io",
    ],
)  # fmt: skip
def test_registries_in_the_country_are_taken(registry: str) -> None:
    allowed = Settings(allowed_registries=("registry.example.ae/falaj", "falaj.azurecr.io"))
    assert require_in_country(registry, allowed, "a test") == registry


@pytest.mark.parametrize(
    "registry",
    ["registry.example.ae", "registry.example.ae/falajx", "other.azurecr.io", "127.0.0.1.example",
     "localhost.example", "Registry.example.ae/falaj", "", "a b", "registry.example.ae/falaj:v1"],
)  # fmt: skip
def test_other_registries_are_refused(registry: str) -> None:
    allowed = Settings(allowed_registries=("registry.example.ae/falaj",))
    with pytest.raises(StackError, match=r"^registry: given"):
        require_in_country(registry, allowed, "a test")


def test_pin_then_mirror_then_rewrite(
    upstream: Registry, target: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    digest = upstream.image("app", "app")
    image = Image("app", f"{upstream.address}/app", "v1", None, None, "MIT", ("test",), "apps/app")
    monkeypatch.setattr(items, "images", lambda: {"app": image})
    monkeypatch.setattr(items, "charts", dict)
    monkeypatch.setattr("falaj.stacks.images.items.images", lambda: {"app": image})
    lock = str(tmp_path / "lock.yaml")
    assert run("pin", "--lock", lock) == 0
    assert run("mirror", "--lock", lock, "--to", target.address) == 0
    assert target.digest(f"{target.address}/apps/app:v1") == digest
    disk = str(tmp_path / "disk")
    assert run("mirror", "--lock", lock, "--archive", disk) == 0
    assert run("load", "--archive", disk, "--to", f"{target.address}/second") == 0
    assert target.digest(f"{target.address}/second/apps/app:v1") == digest
    assert run("load", "--archive", disk, "--to", target.address, "app") == 0
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(f"image: {upstream.address}/app:v1 # ours\n")
    assert run("rewrite", "--lock", lock, "--to", target.address, "--in-place", str(manifest)) == 0
    assert manifest.read_text() == f"image: {target.address}/apps/app:v1@{digest} # ours\n"
    upstream.image("app", "a trojan")
    capsys.readouterr()
    assert run("pin", "--lock", lock) == 1
    assert "stand for something else than what was pinned: app" in capsys.readouterr().err
    assert digest in Path(lock).read_text()
    assert run("pin", "--lock", lock, "--accept", "app") == 0
    assert digest not in Path(lock).read_text()
