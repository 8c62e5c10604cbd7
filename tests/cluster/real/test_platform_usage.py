"""What people see of pods, each by rights of their own: logs, states, a shell."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.real.platform import Platform
from tests.cluster.real.team import SERVING, TRAINING, TRIALS, told_in

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]
TRAINER = ("sara", ("acme:trainers",))
DEPLOYER = ("omar", ("acme:deployers",))


def as_user(platform: Platform, user: tuple[str, tuple[str, ...]], stack: str) -> list[str]:
    """Options with which a command goes to the cluster as somebody."""
    kubeconfig = platform.plane.user_kubeconfig(*user)
    return ["--sandbox", "--cluster", str(kubeconfig), "--stack", stack]


def test_logs_are_read_by_the_rights_of_who_asks(
    platform: Platform, swept: dict[str, Any]
) -> None:
    said = platform.falaj("logs", "rates", *as_user(platform, TRAINER, "real-sweep"))
    assert said.count("==> sweep rates: rates-") == TRIALS
    assert told_in(said, "study")[-1]["best"]
    refused = platform.project.falaj("logs", *as_user(platform, DEPLOYER, "real-sweep"))
    assert refused.returncode == 2, refused.stdout
    assert f'cannot list resource "pods" in API group "" in the namespace "{TRAINING}"' in (
        refused.stdout
    )
    assert "who logs in here has no right to it" in refused.stdout


def test_the_status_says_what_pods_are_doing(platform: Platform, swept: dict[str, Any]) -> None:
    said = platform.falaj("status", *as_user(platform, TRAINER, "real-sweep"))
    assert f"sweep rates  {TRAINING}  {TRIALS} Succeeded" in said


def test_the_shell_leads_to_the_cluster_as_who_asks(
    platform: Platform, swept: dict[str, Any]
) -> None:
    program = (
        "from kubernetes import client, config; config.load_kube_config(); "
        "api = client.CoreV1Api(); "
        f"print('pods:', len(api.list_namespaced_pod('{TRAINING}').items)); "
        f"api.list_namespaced_pod('{SERVING}')"
    )
    words = ["-m", "falaj.stacks.command", "shell", *as_user(platform, TRAINER, "real-sweep")]
    done = subprocess.run(
        [sys.executable, *words], input=f'"{sys.executable}" -c "{program}"\n', text=True,
        cwd=platform.project.root, env={**platform.project.environment, "SHELL": "/bin/sh"},
        capture_output=True, check=False, timeout=240,
    )  # fmt: skip
    assert "pods: " in done.stdout, done.stderr
    assert '"sara\\" cannot list resource' in done.stderr
