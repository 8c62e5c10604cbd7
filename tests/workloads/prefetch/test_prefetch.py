"""The program that holds images, as a process: what is mounted, what isn't, and how it ends.

``/proc`` and ``/sys`` stand in for images: both are mounted everywhere, and not empty.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from falaj.components.catalogue.clusters import IMAGE_VOLUMES_SINCE, PREFETCH_LIMITS
from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.prefetch.__main__ import main, require_image

COMMAND = (sys.executable, "-m", "falaj.workloads.prefetch")
PATIENCE_SECONDS = 120


def run(*folders: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *folders], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_holds_what_is_mounted_until_it_is_told_to_stop(stop: signal.Signals) -> None:
    with subprocess.Popen([*COMMAND, "/proc", "/sys"], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        try:
            assert one.stdout.readline() == "images on this node: 2\n"
            assert one.poll() is None
            one.send_signal(stop)
            assert one.wait(PATIENCE_SECONDS) == 0
        finally:
            one.kill()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_nothing_is_mounted_at_is_refused(tmp_path: Path, there: bool) -> None:
    """What an API server leaves that drops image volumes: no mount, or no folder either."""
    folder = tmp_path / "0"
    if there:
        folder.mkdir()
        (folder / "file").write_text("not of an image", encoding="utf-8")
    done = run("/proc", str(folder))
    assert done.returncode == REFUSED
    assert done.stderr == (
        f"error: {folder}: given no mounted image; image volumes need Kubernetes "
        f"{IMAGE_VOLUMES_SINCE} and containerd 2.1 on the node, or later\n"
    )
    assert done.stdout == ""


def test_an_image_with_nothing_in_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older kubelet mounts, or containerd of an artifact that is no image."""
    monkeypatch.setattr(os.path, "ismount", lambda folder: True)
    with pytest.raises(WorkloadError, match="the image that is mounted is empty"):
        require_image(tmp_path)
    (tmp_path / "bin").mkdir()
    require_image(tmp_path)


def test_an_image_whose_folder_is_its_owners_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os.path, "ismount", lambda folder: True)
    monkeypatch.setattr(os, "scandir", refuse)
    require_image(tmp_path)


def test_it_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == REFUSED
    assert "FOLDER" in capsys.readouterr().err


def test_it_takes_less_memory_than_its_pod_may_have() -> None:
    with subprocess.Popen([*COMMAND, "/proc"], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        try:
            one.stdout.readline()
            status = Path(f"/proc/{one.pid}/status").read_text(encoding="utf-8")
        finally:
            one.kill()
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    allowed = int(PREFETCH_LIMITS["memory"].removesuffix("Mi"))
    assert int(peak) < allowed * 1024 / 2
