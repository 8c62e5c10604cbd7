"""The rendered pods of a job run: every flag and variable of theirs means what it should."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from falaj.components.kubernetes._objects import Manifest
from falaj.workloads.training import command
from falaj.workloads.training import dataset as datasets
from tests.components.kubernetes.pod_processes import Machine, finish
from tests.components.kubernetes.training_jobs import CPU, DIGEST, job, pod_of
from tests.ports import free_port

pytestmark = pytest.mark.slow
ROLL_CALL = Path(__file__).parents[2] / "workloads" / "training" / "programs" / "roll_call.py"
#: Sorted as texts, as c10d does, the pod of the highest index is the first.
LATER_FIRST = ("127.0.0.9", "127.0.0.10")
ATTEMPT = {"jobset.sigs.k8s.io/restart-attempt": "0"}


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the digits."""
    dataset = datasets.build(datasets.Source("digits"))
    return datasets.write(dataset, tmp_path_factory.mktemp("datasets"), None)


@pytest.fixture
def machine(tmp_path: Path, digest: Path) -> Machine:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "digits").symlink_to(digest, target_is_directory=True)
    return Machine(tmp_path, {"29400": str(free_port()), "9464": str(free_port())})


def two_pods(**changes: Any) -> list[Manifest]:
    common = {**CPU, "dataset": "digits", "cpus": 1, "nodes": 2, "grace_seconds": 20}
    return job(**{**common, "arguments": ["--epochs", "3", "--threads", "1"], **changes})


def test_two_pods_of_a_gang_train_one_model(machine: Machine) -> None:
    template = pod_of(two_pods())
    machine.addresses = LATER_FIRST
    machine.names["fraud-node-0-0.fraud"] = LATER_FIRST[0]
    processes = [machine.start(template, index, ATTEMPT) for index in (1, 0)]
    assert finish(processes) == [0, 0], _said(machine)
    record = json.loads((machine.folder / "runs/fraud/record.json").read_text(encoding="utf-8"))
    assert record["parameters"]["processes"] == 2
    assert record["epochs"] == 3
    assert record["metrics"]["held_out"]["accuracy"] > 0.8
    finished = [each for each in _events(machine) if each["event"] == "finished"]
    assert len(finished) == 1  # one of the pods reports: that of index 0
    assert '"finished"' in machine.log(0).read_text(encoding="utf-8")


@pytest.mark.thorough
def test_two_pods_of_two_processes_divide_a_language_model(machine: Machine) -> None:
    """As on two machines of eight GPUs: the matrices of a layer within each, the rest between."""
    (machine.folder / "text.txt").write_text(
        "\n".join(
            f"{number} times {number % 7} is {number * (number % 7)}" for number in range(400)
        )
    )
    source = datasets.Source(str(machine.folder / "text.txt"))
    snapshot = datasets.write(datasets.build(source), machine.folder / "snapshots", None)
    (machine.folder / "data" / "text").symlink_to(snapshot, target_is_directory=True)
    arguments = ["--epochs", "2", "--threads", "1", "--width", "32", "--precision", "float32"]
    template = pod_of(
        two_pods(
            dataset="text", processes_per_node=2, arguments=arguments,
            parallel={"shard": 2, "tensor": 2}, recompute="layers",
        )
    )  # fmt: skip
    machine.addresses = LATER_FIRST
    machine.names["fraud-node-0-0.fraud"] = LATER_FIRST[0]
    processes = [machine.start(template, index, ATTEMPT) for index in (1, 0)]
    assert finish(processes) == [0, 0], _said(machine)
    assert "4 process(es) on cpu (shard 2 x tensor 2)" in machine.log(0).read_text("utf-8")
    alone = machine.folder / "alone"
    program = [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(snapshot)]
    done = subprocess.run([*program, "--output", str(alone), *arguments], timeout=300, check=False)
    assert done.returncode == 0
    lines = [
        [json.loads(each)["validation_loss"] for each in path.read_text("utf-8").splitlines()]
        for path in (machine.folder / "runs/fraud/metrics.jsonl", alone / "metrics.jsonl")
    ]
    assert lines[0] == pytest.approx(lines[1], abs=1e-5)


def test_torchrun_ranks_the_pods_of_a_teams_program_by_their_index(machine: Machine) -> None:
    """Whatever their addresses are, and though the last one comes first."""
    own = {"program": ["python", "-m", "torch.distributed.run", str(ROLL_CALL), "/scratch", "1"]}
    image = {"image": f"team/train@{DIGEST}", "dataset": None, "arguments": None}
    template = pod_of(two_pods(processes_per_node=2, **own, **image))
    machine.addresses = LATER_FIRST
    machine.names["fraud-node-0-0.fraud"] = LATER_FIRST[0]
    processes = [machine.start(template, index, ATTEMPT) for index in (1, 0)]
    assert finish(processes) == [0, 0], _said(machine)
    told = json.loads((machine.folder / "scratch/4-0.json").read_text(encoding="utf-8"))
    assert told == [[rank // 2, rank % 2, rank] for rank in range(4)]


@pytest.mark.thorough
def test_an_elastic_job_saves_on_sigterm_goes_on_alone_and_serves_figures(
    machine: Machine,
) -> None:
    """A pod that is evicted leaves with 75; the other meets again and trains on."""
    template = pod_of(
        two_pods(
            elastic={"min_nodes": 1, "max_nodes": 2},
            arguments=["--epochs", "400", "--patience", "400", "--threads", "1"],
        )
    )
    machine.names["fraud-0.fraud"] = "127.0.0.2"
    host, other = (machine.start(template, index) for index in (0, 1))
    try:
        _wait_for(machine, lines=3, of=host)
        metrics = f"http://127.0.0.2:{machine.names['9464']}/metrics"
        with urllib.request.urlopen(metrics, timeout=10) as answer:
            text = answer.read().decode()
        assert re.search(r"^falaj_training_loss \d", text, re.MULTILINE)
        assert re.search(r"^falaj_training_epoch [1-9]", text, re.MULTILINE)
        before = _epochs(machine)
        other.send_signal(signal.SIGTERM)
        assert other.wait(60) == 75
        _wait_for(machine, lines=before + 2, of=host)
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 75
    finally:
        finish([host, other])
    events = _events(machine)
    resumed = [event["epoch"] for event in events if event["event"] == "resume"]
    assert resumed, events
    assert max(resumed) >= before - 1
    assert (machine.folder / "runs/fraud/checkpoint").exists()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"env": {"PET_NNODES": "two"}}, "PET_NNODES is 'two'"),
        ({"env": {"PET_RDZV_ENDPOINT": None}}, "neither PET_RDZV_ENDPOINT nor"),
        ({"env": {"PET_RDZV_CONF": "last_cal_timeout=5"}}, "last_call_timeout"),
        ({"env": {"FALAJ_GRACE_SECONDS": "a while"}}, "allowed are whole seconds"),
        ({"flag": ("--dataset", "--datasets")}, "required: --dataset"),
        ({"flag": ("$(POD_IP):9464", "$(POD_PI):9464")}, "an address of this machine"),
    ],
)
def test_a_wrong_flag_or_variable_is_found(
    machine: Machine, changed: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the pod, but in this process: it ends before anything is trained."""
    template = json.loads(json.dumps(pod_of(two_pods())))
    machine.names["fraud-node-0-0.fraud"] = "127.0.0.2"
    container = template["spec"]["containers"][0]
    for name, value in changed.get("env", {}).items():
        kept = [each for each in container["env"] if each["name"] != name]
        container["env"] = kept + ([{"name": name, "value": value}] if value else [])
    if "flag" in changed:
        right, wrong = changed["flag"]
        assert right in container["command"]
        container["command"] = [wrong if word == right else word for word in container["command"]]
    words, environ = machine.program(template, 0, ATTEMPT)
    assert words[:2] == ["-m", "falaj.workloads.training"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
        for name, value in environ.items():
            patch.setenv(name, value)
        try:
            code = command.main(words[2:])
        except SystemExit as ended:  # argparse's own way
            code = ended.code
    assert code == 2
    assert reason in capsys.readouterr().err


def _said(machine: Machine) -> str:
    logs = sorted(machine.folder.glob("pod-*.log"))
    return "".join(each.read_text(encoding="utf-8") for each in logs)


def _events(machine: Machine) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _said(machine).splitlines() if line[:1] == "{"]


def _epochs(machine: Machine) -> int:
    path = machine.folder / "runs/fraud/metrics.jsonl"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def _wait_for(machine: Machine, lines: int, of: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while _epochs(machine) < lines:
        assert of.poll() is None, _said(machine)
        assert time.monotonic() < until, _said(machine)
        time.sleep(0.2)
