"""The launcher's command line, the variables that it gives, and the file it packs itself in."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.horovod.command import main, pack
from falaj.workloads.horovod.world import MOST_PROCESSES, World, interface_of
from tests.components.kubernetes.pod_processes import finish
from tests.workloads.horovod.launched import Job


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--nodes", "0"], "machine 0 of 0"),
        (["--processes", "0"], "with 0 process(es)"),
        (["--index", "2", "--nodes", "2"], "machine 2 of 2"),
        (["--index", "-1"], "machine -1 of 1"),
        (["--nodes", "33", "--processes", "8"], "33 x 8 = 264 processes: allowed are 256"),
        (["--rendezvous", "host:0"], "a port from 1 to 65535"),
        (["--rendezvous", "host:70000"], "a port from 1 to 65535"),
        (["--rendezvous", "a b:1"], "allowed is host:port"),
        (["--grace-seconds", "0"], "--grace-seconds is 0"),
        (["--wait-seconds", "90000"], "--wait-seconds is 90000"),
        (["--address", "fd00::1"], "speaks no IPv6"),
        (["--address", "$(POD_IP)"], "'$(POD_IP)'"),
        (["--address", "203.0.113.7"], "which no interface of this machine has"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options, "--", "true"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert reason in error


@pytest.mark.parametrize(
    "words", [["run"], ["run", "--index", "one", "--", "true"], ["run", "--nods", "2", "x"], []]
)
def test_a_wrong_command_line_says_how_it_is_used(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: python -m falaj.workloads.horovod" in capsys.readouterr().err


@given(nodes=st.integers(1, 40), processes=st.integers(1, 20))
def test_every_process_has_a_rank_of_its_own(nodes: int, processes: int) -> None:
    if nodes * processes > MOST_PROCESSES:
        with pytest.raises(WorkloadError):
            World(nodes, processes, 0)
        return
    given_ = [
        World(nodes, processes, index).environment(local)
        for index in range(nodes)
        for local in range(processes)
    ]
    assert [int(each["HOROVOD_RANK"]) for each in given_] == list(range(nodes * processes))
    hosts = {(each["HOROVOD_HOSTNAME"], each["HOROVOD_LOCAL_RANK"]) for each in given_}
    assert len(hosts) == nodes * processes
    assert {each["HOROVOD_SIZE"] for each in given_} == {str(nodes * processes)}


def test_the_interface_is_the_one_that_has_the_address_or_its_network() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("127.0.0.9") == "lo"


def test_the_packed_file_runs_alone_and_leaves_the_program_its_own_modules(
    tmp_path: Path,
) -> None:
    """A package named ``falaj`` is the program's as well; PYTHONPATH is the image's."""
    packed, own = tmp_path / "horovod.pyz", tmp_path / "own" / "falaj"
    pack(packed)
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("NAME = 'the team'")
    ask = "import os, sys, falaj; print(falaj.NAME, os.environ['HOROVOD_SIZE'], sys.argv)"
    done = subprocess.run(
        [sys.executable, "-I", str(packed), "run", "--processes", "1", "--rendezvous",
         f"127.0.0.1:{Job(tmp_path).port}", "--", sys.executable, "-c", ask, "--nodes", "7"],
        cwd=tmp_path, env={"PYTHONPATH": str(own.parent)}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "the team 1 ['-c', '--nodes', '7']\n"


def test_the_packed_file_needs_nothing_but_an_older_python(tmp_path: Path) -> None:
    """Syntax of 3.8, and the standard library."""
    packed = tmp_path / "horovod.pyz"
    pack(packed)
    with zipfile.ZipFile(packed) as archive:
        names = set(archive.namelist())
        sources = {name: archive.read(name).decode() for name in names}
    for name, source in sources.items():
        tree = ast.parse(source, name, feature_version=(3, 8))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            else:
                continue
            for module in imported:
                top = module.partition(".")[0]
                assert top in sys.stdlib_module_names or f"{module.replace('.', '/')}.py" in names


def test_the_packed_file_is_the_same_each_time(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    pack(one)
    pack(other)
    assert one.read_bytes() == other.read_bytes()


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(tmp_path / "none" / "horovod.pyz")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_variables_of_the_user_are_kept_and_those_of_the_launcher_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "77")
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    monkeypatch.setenv("HOROVOD_RANK", "9")
    job = Job(tmp_path, nodes=1)
    names = ["HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_RANK"]
    ask = f"import os; print([os.environ[name] for name in {names}])"
    assert finish([job.start(0, sys.executable, "-c", ask)]) == [0]
    assert job.said() == "['77', '0', '0']\n"
