"""Processes that end in the middle of a publication or rotation, and disks that fill up in it."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import seal, unseal
from falaj.workloads.registry.store import Store, read_events

PUBLISHER = """
import json, sys
from pathlib import Path
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store

root, ring, fields = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
store, keyring = Store(root), KeyRing.open(ring)
print("ready", flush=True)
for number in range(1000):
    content = f"{sys.argv[4]} {number} ".encode() * 2000
    done = store.publish("digits", {"model.onnx": content, "card.md": content}, fields, keyring)
    store.promote("digits", done.version)
"""

ROTATOR = """
import sys
from pathlib import Path
from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import KeyRing

keyring = KeyRing.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    rotation.rotate(keyring, [Path(name) for name in sys.argv[2:]])
"""


def kill_after(code: str, arguments: list[str], seconds: float) -> None:
    """Start a process, let it work for some time, and end it with SIGKILL."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        assert process.poll() is None
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL


def check_all(store: Store, keyring: KeyRing) -> list[int]:
    versions = store.versions("digits")
    for version in versions:
        store.verify("digits", version, keyring, keyring.verify_key())
    return versions


def test_killed_publishers_leave_whole_versions_only(
    store: Store, keyring: KeyRing, fields: dict[str, Any]
) -> None:
    rng = random.Random(20260101)
    seen: list[int] = []
    for attempt in range(6):
        arguments = [str(store.root), str(keyring.path), json.dumps(fields), str(attempt)]
        kill_after(PUBLISHER, arguments, rng.uniform(0.0, 0.15))
        now = check_all(store, keyring)
        assert set(seen) <= set(now)
        seen = now
        for alias in store.aliases("digits").values():
            assert alias.version in now
    done = store.publish("digits", {"model.onnx": b"after"}, fields, keyring)
    assert done.version == max([0, *seen]) + 1
    assert not list(store.root.glob("digits/.staging-*"))
    assert check_all(store, keyring) == [*seen, done.version]
    recorded = [e["version"] for e in read_events(store.root) if e["action"] == "publish"]
    assert set(recorded) >= {*seen, done.version}


def test_killed_rotations_leave_everything_readable(
    store: Store, keyring: KeyRing, fields: dict[str, Any], tmp_path: Path
) -> None:
    sealed = tmp_path / "runs"
    sealed.mkdir()
    for number in range(6):
        content = bytes([number])
        store.publish("digits", {"model.onnx": content}, fields, keyring)
        seal(sealed / f"{number}.sealed", content, keyring, content)
    rng = random.Random(20260102)
    folders = [str(store.root), str(sealed)]
    for _ in range(6):
        kill_after(ROTATOR, [str(keyring.path), *folders], rng.uniform(0.0, 0.15))
        again = KeyRing.open(keyring.path)
        assert check_all(store, again) == [1, 2, 3, 4, 5, 6]
        for number in range(6):
            content = bytes([number])
            assert unseal(sealed / f"{number}.sealed", again, content) == content
    done = rotation.rotate(keyring, [store.root, sealed])
    assert keyring.versions == [done.primary]
    assert [path.name for path in keyring.path.glob("kek-*")] == [f"kek-{done.primary}.key"]
    assert check_all(store, keyring) == [1, 2, 3, 4, 5, 6]
    assert not [path for path in store.root.rglob(".tmp-*") if path.parent.name.isdigit()]


@pytest.mark.parametrize("kibibytes", [1, 20])
def test_file_size_limit_while_publishing(
    store: Store, keyring: KeyRing, fields: dict[str, Any], tmp_path: Path, kibibytes: int
) -> None:
    store.publish("digits", {"model.onnx": b"one"}, fields, keyring)
    store.promote("digits", 1)
    before = sorted(store.root.rglob("*"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.onnx").write_bytes(bytes(50_000))
    (source / "fields.json").write_text(json.dumps(fields))
    command = [
        sys.executable, "-m", "falaj.workloads.registry", "publish", "--registry", str(store.root),
        "--model", "digits", "--keyring", str(keyring.path), "--from", str(source),
        "--fields", str(source / "fields.json"),
    ]  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f "$0"; exec "$@"', str(kibibytes), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "no space left while writing" in done.stderr
    assert "free space and run again" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(store.root.rglob("*")) == before
    assert check_all(store, keyring) == [1]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert check_all(store, keyring) == [1, 2]
