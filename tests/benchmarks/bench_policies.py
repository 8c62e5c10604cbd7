"""The packs' cost on a preview of 1,000 resources, and a scanner of others over as many."""

from __future__ import annotations

import hashlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.engine.files import cache_home
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.benchmarks.bench_preview import bare_project
from tests.policies.shipped import stack_of
from tests.stacks.conftest import ROOT, Project
from tests.stacks.in_mocks import declare, shipped

pytestmark = pytest.mark.benchmark_suite

RESOURCES = 1_000
ROUNDS = 5
PACKS = ROOT / "policies" / "all"
#: What the scanner reads: as many resources, of types that it knows rules for.
TERRAFORM = ("aws_s3_bucket", "aws_sqs_queue", "aws_sns_topic", "aws_ebs_volume", "aws_kms_key")


#: A pack that has no rule: what the engine itself takes for asking any pack.
EMPTY = """
from dataclasses import replace
from pathlib import Path

from falaj.policies.server import serving

folder = Path({folder!r})
loaded = serving.load_pack(folder)
serving.load_pack = lambda _: replace(loaded, rules=())
serving.serve(folder)
"""


def empty_pack(folder: Path) -> Path:
    """Make a pack without rules."""
    folder.mkdir()
    described = (PACKS / "PulumiPolicy.yaml").read_text()
    (folder / "PulumiPolicy.yaml").write_text(described.replace("../../.venv", sys.prefix))
    (folder / "__main__.py").write_text(EMPTY.format(folder=str(PACKS)))
    return folder


def scanner() -> Path:
    """The command of Checkov, in an environment of its own that later runs find again."""
    pinned = ROOT / "requirements" / "checkov.txt"
    folder = cache_home() / "checkov" / hashlib.sha256(pinned.read_bytes()).hexdigest()[:16]
    command = folder / "bin" / "checkov"
    if not command.exists():
        uv = Path(sys.prefix) / "bin" / "uv"
        subprocess.run([uv, "venv", "-q", "--clear", folder], check=True)
        python = folder / "bin" / "python"
        subprocess.run(
            [uv, "pip", "install", "-q", "--require-hashes", "--python", python, "-r", pinned],
            check=True,
        )
    return command


def terraform(folder: Path) -> None:
    """A program for the scanner with `RESOURCES` resources."""
    blocks = (
        f'resource "{TERRAFORM[number % len(TERRAFORM)]}" "r{number}" {{\n'
        '  tags = { owner = "a" }\n}\n'
        for number in range(RESOURCES)
    )
    (folder / "main.tf").write_text("".join(blocks))


@pytest.mark.timeout(3_600)
def test_preview_of_1000_resources(
    project: Project, benchmark: BenchmarkFixture, tmp_path: Path
) -> None:
    declared = declare(shipped("aws-cluster"), "aws-cluster").resources
    provider = next(each for each in declared if each.type.startswith("pulumi:providers:"))
    others = [each for each in declared if not each.type.startswith("pulumi:")]
    folder = project.root.parent / "thousand"
    bare_project(folder, [provider, *itertools.islice(itertools.cycle(others), RESOURCES)])
    project.in_sandbox(folder, ["pulumi", "stack", "init", "dev"])
    # Physical names are the same many times over: what is found is said, and the preview goes on.
    advisory = tmp_path / "advisory.json"
    advisory.write_text('{"all": "advisory"}')
    packs = ["--policy-pack", str(PACKS), "--policy-pack-config", str(advisory)]
    command = scanner()
    (tmp_path / "tf").mkdir()
    terraform(tmp_path / "tf")

    def preview(*more: str) -> float:
        started = time.perf_counter()
        done = project.in_sandbox(
            folder, ["pulumi", "preview", "-s", "dev", "--json", "--non-interactive", *more]
        )
        assert done.returncode == 0, done.stdout[-3_000:]
        return time.perf_counter() - started

    def scan() -> float:
        started = time.perf_counter()
        done = subprocess.run(
            [command, "-d", tmp_path / "tf", "--framework", "terraform", "--compact", "--quiet"],
            env={**os.environ, "LOG_LEVEL": "ERROR"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Passed checks" in done.stdout, done.stdout[-2_000:] + done.stderr[-2_000:]
        return time.perf_counter() - started

    empty = ["--policy-pack", str(empty_pack(tmp_path / "empty"))]
    bare: list[float] = []
    asked: list[float] = []
    scanned: list[float] = []

    def before() -> None:
        bare.append(preview())
        asked.append(preview(*empty))
        scanned.append(scan())

    preview(*packs)
    benchmark.pedantic(lambda: preview(*packs), setup=before, rounds=ROUNDS, iterations=1)
    ours, theirs = benchmark.stats.stats.median, statistics.median(bare)
    floor = statistics.median(asked)
    print(
        f"\npreview of {RESOURCES} resources: {theirs:.1f} s; with a pack without rules "
        f"{floor:.1f} s, {floor / theirs:.2f} times; with all packs ({len(all_rules())} rules) "
        f"{ours:.1f} s, {ours / theirs:.2f} times; Checkov over as many: "
        f"{statistics.median(scanned):.1f} s"
    )


def test_rules_alone(benchmark: BenchmarkFixture) -> None:
    """The rules without an engine: what one resource costs."""
    stack = stack_of("aws-cluster")
    judge = Judge(all_rules())
    benchmark(lambda: judge.evaluate_stack(stack))
    count = len(stack.resources)
    each = benchmark.stats.stats.median / count * 1e6
    print(f"\n{len(all_rules())} rules over {count} resources: {each:.0f} us each")
