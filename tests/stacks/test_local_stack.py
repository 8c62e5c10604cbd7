"""A real engine brings the local stack up, changes it under load, and takes it down.

Each test first brings the stack to the state that it needs; `up` does only what is missing, so
the tests share one stack and still run alone and in any order.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ports import free_port
from tests.stacks.client import Client, mint
from tests.stacks.conftest import Project, wait_for
from tests.stacks.images.registries import running

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

IMAGE = ("image", "FP32", [1, 1, 8, 8], [0.0] * 64)
QUICK = {"epochs": 2, "batchSize": 256}


def served(project: Project, **training: Any) -> dict[str, Any]:
    """Bring the stack up with a quickly trained model; returns the service's configuration."""
    project.configure(dataset="digits", training={**QUICK, **training})
    if not project.stands():
        project.up()
    path = next(project.site.glob("service/*/service.json"))
    return json.loads(path.read_text())


def unchanged(printed: str) -> bool:
    """Whether an `up` found nothing to do."""
    resources = printed.partition(" resources: ")[2].partition("\n")[0]
    return bool(re.fullmatch(r"\d+ unchanged", resources))


def test_unknown_key_is_refused_before_the_engine_starts(project: Project) -> None:
    project.configure(dataset="digits", trainnig={})
    done = project.falaj("up")
    assert done.returncode == 2
    assert "falaj:trainnig: unknown key; did you mean training?" in done.stdout
    assert "pulumi" not in done.stdout.lower().replace("pulumi.local.yaml", "")


@pytest.mark.thorough
def test_plain_pulumi_refuses_it_too_and_registers_nothing(project: Project) -> None:
    project.configure(dataset="digits", training=QUICK)
    assert project.falaj("preview").returncode == 0
    project.configure(dataset="digits", training={"epochs": "many"})
    done = project.pulumi("preview", "-s", project.stack)
    assert done.returncode != 0
    assert "falaj:training.epochs: given 'many'; allowed: a whole number" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.thorough
def test_up_serves_and_a_second_up_changes_nothing(project: Project) -> None:
    config = served(project)
    client = Client(config, mint(config))
    first = client.infer(IMAGE)
    printed = project.up()
    assert unchanged(printed), printed
    assert client.infer(IMAGE) == first
    assert f":{project.port}/v2/models/digits/infer" in printed
    assert "make rollback" in printed


@pytest.mark.thorough
def test_printed_calls_work_when_pasted(project: Project) -> None:
    served(project)
    printed = project.up()
    token = f"{sys.executable} -m falaj.stacks.command token --stack {project.stack}"
    curl = printed.partition("Call it with curl:\n")[2].partition("\n\n")[0]
    answer = project.shell(curl.replace("make -s token", token))
    assert json.loads(answer)["model_name"] == "digits"
    snippet = printed.partition("Call it with tritonclient:\n")[2].partition("\nEOF")[0] + "\nEOF"
    snippet = snippet.replace("['make', '-s', 'token']", repr(token.split()))
    assert "label [" in project.shell(snippet)


@pytest.mark.thorough
def test_demo_shows_digits_and_accuracy(project: Project) -> None:
    served(project)
    done = project.falaj("demo")
    assert done.returncode == 0, done.stdout
    assert re.search(r"accuracy through the endpoint: \d+/\d+ = \d+\.\d\d%", done.stdout)
    assert "@@" in done.stdout


@pytest.mark.thorough
def test_status_names_process_port_and_version(project: Project) -> None:
    served(project)
    done = project.falaj("status")
    assert done.returncode == 0, done.stdout
    assert str(project.port) in done.stdout
    assert str(project.state()["pid"]) in done.stdout
    assert f", {project.state()['workers'][0]['engine']}" in done.stdout


@pytest.mark.thorough
def test_refresh_finds_no_drift(project: Project) -> None:
    served(project)
    done = project.pulumi("refresh", "--yes", "--expect-no-changes", "-s", project.stack)
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_files_are_private(project: Project) -> None:
    served(project)
    assert stat.S_IMODE(project.site.stat().st_mode) == 0o700
    assert stat.S_IMODE((project.home / "passphrase").stat().st_mode) == 0o600
    for path in project.site.rglob("*"):
        if path.suffix in {".key", ".pem"} and "pub" not in path.name:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    exported = project.pulumi("stack", "export", "-s", project.stack).stdout
    assert "PRIVATE KEY" not in exported


@pytest.mark.thorough
def test_no_model_or_data_in_clear_text(project: Project) -> None:
    served(project)
    for path in project.site.rglob("*"):
        if path.is_file():
            head = path.read_bytes()[:4096]
            assert b"PAR1" not in head, path
            assert b"pytorch" not in head, path
            assert path.suffix not in {".onnx", ".pt", ".csv", ".parquet"}, path


@pytest.mark.thorough
def test_hyperparameter_change_and_rollback_lose_no_request(project: Project) -> None:
    config = served(project)
    token = mint(config)
    seen: list[str] = []
    failures: list[str] = []
    stop = threading.Event()

    def send(fresh: bool) -> None:
        client = Client(config, token)
        while not stop.is_set():
            try:
                seen.append(client.infer(IMAGE)["version"])
            except Exception as error:
                failures.append(repr(error))
            if fresh:
                client.close()
            # Often enough for every moment of a change to be asked in.
            time.sleep(0.005)
        client.close()

    threads = [threading.Thread(target=send, args=(fresh,)) for fresh in (False, False, True)]
    for thread in threads:
        thread.start()
    try:
        before = int(wait_for(lambda: seen and seen[-1], "a first answer"))
        project.configure(dataset="digits", training={**QUICK, "learningRate": 0.002})
        project.up()
        after = int(wait_for(lambda: seen[-1] != str(before) and seen[-1], "the new version"))
        assert after > before
        told = project.falaj("runs", "compare", str(before), str(after), "--json")
        differ = json.loads(told.stdout)["differ"]
        assert differ["parameters"]["learning_rate"][1] == 0.002
        assert set(differ["parameters"]) == {"learning_rate"}
        assert "accuracy" in differ["figures"] or "validation_loss" in differ["figures"]
        assert project.falaj("rollback").returncode == 0
        wait_for(lambda: seen[-1] == str(before), "the old version")
        printed = project.up()
        assert unchanged(printed), printed
        assert f"version {before} (rolled back; the figures below are those of" in printed
        assert seen[-1] == str(before)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(seen) > 100


@pytest.mark.thorough
def test_what_is_served_opens_where_it_was_published(project: Project, tmp_path: Path) -> None:
    config = served(project)
    with running(tmp_path / "registry") as registry:
        done = project.falaj("publish", registry.address)
        assert done.returncode == 0, done.stdout
        assert f"digits version {project.state()['version']} is in" in done.stdout
        opened = project.falaj(
            "models", "verify", registry.address, "digits", "--alias", "production",
            "--keyring", str(config["keyring"]),
        )  # fmt: skip
        assert opened.returncode == 0, opened.stdout


@pytest.mark.thorough
def test_key_rotation_keeps_everything_readable(project: Project) -> None:
    config = served(project)
    before = json.loads((Path(config["keyring"]) / "keyring.json").read_text())["primary"]
    keys = {"rotation": project.rotation + 1}
    project.configure(dataset="digits", training=QUICK, keys=keys)
    project.up()
    after = json.loads((Path(config["keyring"]) / "keyring.json").read_text())
    assert after["primary"] != before
    assert list(after["keys"]) == [after["primary"]]
    # A fresh worker must open the package with the new key alone.
    os.kill(project.state()["workers"][0]["pid"], signal.SIGKILL)
    client = Client(config, mint(config))
    assert wait_for(lambda: answered(client), "the new worker")["version"]


def answered(client: Client) -> dict[str, Any] | None:
    """An answer, or None while the service is coming back."""
    try:
        return client.infer(IMAGE)
    except (OSError, AssertionError):
        client.close()
        return None


@pytest.mark.thorough
def test_killed_server_comes_back_on_the_same_port(project: Project) -> None:
    config = served(project)
    pid = project.state()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: project.state().get("pid") not in (None, pid), "another process")
    client = Client(config, mint(config))
    assert wait_for(lambda: answered(client), "an answer")["version"]


@pytest.mark.thorough
def test_up_repairs_a_dead_supervisor_and_server(project: Project) -> None:
    config = served(project)
    for process in project.processes():
        process.kill()
    wait_for(lambda: not project.processes(), "the processes to end")
    printed = project.up()
    assert not unchanged(printed)
    assert Client(config, mint(config)).infer(IMAGE)["version"]


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_interrupted_up_is_completed_by_the_next(project: Project, how: signal.Signals) -> None:
    served(project)
    rate = 0.0031 if how == signal.SIGINT else 0.0032
    project.configure(
        dataset="digits", training={"epochs": 400, "patience": 400, "learningRate": rate}
    )
    process = project.start("up")
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(r"epoch\W+\d+", line):
            break
    else:
        pytest.fail("no training progress was shown")
    engines = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.name() == "pulumi"
    ]
    if how == signal.SIGKILL:
        engines[0].kill()
    else:
        os.killpg(process.pid, signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert "Traceback" not in rest
    assert process.returncode != 0
    wait_for(
        lambda: not [p for p in project.processes() if "falaj.workloads.training" in p.cmdline()],
        "the trainer to end",
    )
    checkpoints = list(project.site.glob("runs/*/checkpoint*"))
    assert checkpoints
    project.configure(dataset="digits", training=QUICK)
    project.up()
    assert project.falaj("status").returncode == 0


@pytest.mark.thorough
def test_port_in_use_is_named(project: Project) -> None:
    served(project)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        project.configure(dataset="digits", training=QUICK, service={"port": taken})
        done = project.falaj("up")
    assert done.returncode != 0
    assert re.search(rf"port {taken}\b.*(in use|held|taken)", done.stdout)
    assert project.falaj("status").returncode == 0


@pytest.mark.thorough
def test_down_leaves_nothing_but_what_is_retained(project: Project) -> None:
    project.configure(dataset="digits", training=QUICK, retain=True)
    project.up()
    # A file that was changed but never brought up does not take what the stack retains.
    project.configure(dataset="digits", training=QUICK, retain=False)
    assert "is down" in project.down()
    assert (project.site / "keyring").is_dir()
    assert not project.processes()
    project.up()
    project.down()
    assert not project.site.exists()
    assert not project.processes()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", project.port))
    # What this machine has seen of registries is no stack's: without it a registry could go back.
    left = [path.relative_to(project.home) for path in project.home.rglob("*")]
    assert not [path for path in left if path.parts[0] != "models"], left


def test_preview_of_a_new_stack_touches_nothing(project: Project) -> None:
    fresh = Project(project.root, project.home.parent / "other", "fresh", free_port())
    fresh.configure(dataset="digits")
    done = fresh.falaj("preview", "--details")
    assert done.returncode == 0, done.stdout
    assert "TrainingRun" in done.stdout
    assert not fresh.site.exists()
