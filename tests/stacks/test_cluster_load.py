"""``falaj cluster load`` without a cluster: a registry that answers as the real one does.

That pods run what it loads is tested on real machines: tests/cluster/real/test_platform.py.
"""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from falaj.components.kubernetes.bill_of_materials import images
from falaj.engine import debian
from falaj.engine.controlplane import bases, binaries
from falaj.engine.controlplane.binaries import IN_PODS
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.record import Record, Settings
from falaj.engine.controlplane.registry import Image
from falaj.engine.errors import EngineError
from falaj.policies.rules import all_rules
from falaj.policies.waivers import read_waivers
from falaj.stacks.command import loading, testplane
from falaj.stacks.command.__main__ import main
from falaj.stacks.images import crane
from falaj.stacks.images.build import Built
from falaj.stacks.images.items import load
from falaj.stacks.images.kept import Kept
from tests.stacks.in_mocks import ROOT, shipped

HOST = "registry.abudhabi-dc1.example.ae"
LOCK = "images.real-cluster.lock.yaml"


@dataclass
class Plane:
    """A folder of a control plane, and what its registry was sent."""

    folder: Path
    address: str
    manifests: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def write(self, **changed: Any) -> None:
        """What the control plane writes of itself."""
        files = Files(self.folder)
        Settings({}, lifeline=False, real=2, real_registry=HOST).write(files)
        given: dict[str, Any] = {"pid": 1, "state": "ready", "registry": self.address, **changed}
        Record(**given).write(files)


@contextmanager
def registry(folder: Path) -> Generator[Plane]:
    """One that keeps manifests and forgets layers; its certificate is of an own authority."""
    plane = Plane(folder, "")

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.answer(200 if self.path in plane.manifests else 404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(201)

        def do_PUT(self) -> None:
            plane.manifests[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(201)

        def log_message(self, format: str, *args: object) -> None:
            pass

    files = Files(folder)
    pair = Authority(files.certificates).server("registry", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        plane.address = f"127.0.0.1:{server.server_port}"
        yield plane
        server.shutdown()


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Plane]:
    monkeypatch.setattr(Record, "is_running", True)
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "plane"
    folder.mkdir()
    with registry(folder) as found:
        found.write()
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that has the shipped template and its waivers."""
    root = tmp_path / "project"
    for name in ("stacks/templates/real-cluster.yaml", "stacks/waivers/real-cluster.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    about = "name: falaj\nruntime: python\nstackConfigDir: stacks\n"
    (root / "Pulumi.yaml").write_text(about)
    return root


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Controllers that were built before; the folder of their binaries."""
    folder = tmp_path / "built"
    folder.mkdir()
    for name in IN_PODS:
        (folder / name).write_text(name)
        (folder / name).chmod(0o755)

    def program(path: str, binary: Path) -> Mapping[str, Path]:
        return {path.lstrip("/"): binary}

    monkeypatch.setattr(binaries, "ensure", lambda names, report: dict.fromkeys(names, folder))
    there = {name: SimpleNamespace(is_there=True) for name in IN_PODS}
    monkeypatch.setattr(binaries, "built", lambda: there)
    monkeypatch.setattr(loading, "with_libraries", program)
    return folder


def run(plane: Plane, project: Path, *words: str) -> int:
    given = ("--folder", str(plane.folder), "--project", str(project))
    return main(["cluster", "load", *words, *given])


def test_unknown_names_are_refused_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "load", "kueu", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "name: given 'kueu', which isn't made for real machines" in said
    assert "allowed: kueue, jobset, trainer, falaj-inference, falaj-training-cpu" in said
    assert "did you mean 'kueue'?" in said


def test_what_needs_gpus_is_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "load", "falaj-training"]) == 2
    assert "did you mean 'falaj-training-cpu'?" in capsys.readouterr().err


def test_without_a_control_plane_it_is_said_how_to_start_one(
    tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cluster", "load", "--folder", str(tmp_path / "plane"), "--project", str(project)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"no control plane runs in {tmp_path / 'plane'}" in said
    assert "falaj cluster up --real 2" in said
    assert not (project / "stacks/Pulumi.real-cluster.yaml").exists()


def test_simulated_machines_pull_nothing(
    plane: Plane, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.write(registry="")
    assert run(plane, project) == 2
    said = capsys.readouterr().err
    assert "has no real machines" in said
    assert "falaj cluster down" in said
    assert "falaj cluster up --real 2" in said


def test_a_registry_that_does_not_answer_is_named(
    plane: Plane, project: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plane.write(registry="127.0.0.1:1")
    assert run(plane, project, "kueue") == 2
    assert "the registry 127.0.0.1:1 can't be reached" in capsys.readouterr().err
    assert not (project / LOCK).exists()


def test_a_registry_of_another_authority_gets_nothing(
    plane: Plane, project: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(plane.folder / "certificates", ignore_errors=True)
    Authority(Files(plane.folder).certificates)
    assert run(plane, project, "kueue") == 2
    assert "can't be reached: [SSL: CERTIFICATE_VERIFY_FAILED]" in capsys.readouterr().err
    assert plane.manifests == {}


def test_a_missing_builder_is_installed_or_said(
    plane: Plane, project: Path, built: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked: list[Any] = []

    def install(packages: Any) -> None:
        asked.append(packages)
        raise EngineError(f"on Debian, as root: apt-get install {' '.join(packages)}")

    monkeypatch.setattr(debian, "install", install)
    monkeypatch.setenv("PATH", str(built))
    assert run(plane, project) == 2
    said = capsys.readouterr().err
    assert "buildah" in asked[0]
    assert "buildah is missing, which builds falaj-inference and falaj-training-cpu" in said
    assert "apt-get install buildah" in said
    assert "without it: falaj cluster load kueue jobset trainer" in said
    # Controllers alone need none.
    asked.clear()
    assert run(plane, project, "kueue", "jobset") == 0
    assert asked == []


@pytest.mark.parametrize(
    "case",
    [
        ["nobody", "there is no stack 'nobody'"],
        ["local", "--stack: given 'local', which runs in no cluster"],
        ["bare", "falaj:images is missing, so that the stack would not take what is loaded"],
    ],
)
def test_stacks_that_take_no_images_are_refused(
    plane: Plane, project: Path, case: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, said = case
    local = {"config": {"falaj:platform": "local", "falaj:dataset": "digits"}}
    (project / "stacks/Pulumi.local.yaml").write_text(yaml.safe_dump(local))
    bare = yaml.safe_load((project / "stacks/templates/real-cluster.yaml").read_text())
    del bare["config"]["falaj:images"]
    (project / "stacks/Pulumi.bare.yaml").write_text(yaml.safe_dump(bare))
    assert run(plane, project, "kueue", "--stack", stack) == 2
    assert said in capsys.readouterr().err
    assert plane.manifests == {}


def test_a_lock_of_another_registry_is_left_alone(
    plane: Plane, project: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {
        "reference": "registry.k8s.io/kueue/kueue:v0.19.2",
        "digest": f"sha256:{'1' * 64}",
        "seen": "2026-11-21",
    }
    text = yaml.safe_dump({"images": {"kueue": entry}})
    (project / LOCK).write_text(text)
    assert run(plane, project, "kueue") == 2
    said = capsys.readouterr().err
    assert "images.kueue is registry.k8s.io/kueue/kueue:v0.19.2, which stands elsewhere" in said
    assert "--lock FILE" in said
    assert plane.manifests == {}
    assert (project / LOCK).read_text() == text
    # What it doesn't write may stand wherever it does.
    assert run(plane, project, "jobset") == 0
    assert load(project / LOCK).images["kueue"].digest == entry["digest"]


def test_controllers_are_pushed_once_and_pinned(
    plane: Plane, project: Path, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(plane, project, *IN_PODS) == 0
    said = capsys.readouterr().out
    assert "made stacks/Pulumi.real-cluster.yaml from its template" in said
    lock = load(project / LOCK).images
    assert set(lock) == set(IN_PODS)
    for name in IN_PODS:
        below = images()[name].mirror
        assert lock[name].reference.startswith(f"{HOST}/falaj/{below}:v")
        program = {"manager": built / name}
        assert lock[name].digest == Image.of_program(program, ["/manager"]).digest
        path = f"/v2/falaj/{below}/manifests/{lock[name].digest}"
        assert path in plane.manifests
        assert f"{name}: pushed: {lock[name].digest}" in said
    text = (project / LOCK).read_text()
    sent = dict(plane.manifests)
    plane.manifests.update(dict.fromkeys(sent, b"not sent again"))
    assert run(plane, project, *IN_PODS) == 0
    said = capsys.readouterr().out
    assert said.count("is there: sha256:") == 3
    assert "nothing had to be pushed; 3 digests are in" in said
    assert set(plane.manifests.values()) == {b"not sent again"}
    assert (project / LOCK).read_text() == text


def test_another_binary_is_another_digest_in_the_same_lock(
    plane: Plane, project: Path, built: Path
) -> None:
    assert run(plane, project, *IN_PODS) == 0
    before = load(project / LOCK).images
    (built / "kueue").write_text("another")
    assert run(plane, project, "kueue", "kueue") == 0
    after = load(project / LOCK).images
    assert after["kueue"].digest != before["kueue"].digest
    assert after["jobset"] == before["jobset"]


def test_a_lock_of_ones_own_is_written(plane: Plane, project: Path, built: Path) -> None:
    own = project / "own.yaml"
    assert run(plane, project, "jobset", "--lock", str(own)) == 0
    assert set(load(own).images) == {"jobset"}
    assert "falaj cluster load" in own.read_text().splitlines()[0]
    assert not (project / LOCK).exists()


def test_a_dry_run_changes_nothing_and_says_all(
    plane: Plane, project: Path, built: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = sorted(path for path in project.rglob("*"))
    monkeypatch.setenv("PATH", str(built))  # no builder, and nothing asks for one
    there = {**binaries.built(), "kueue": SimpleNamespace(is_there=False)}
    monkeypatch.setattr(binaries, "built", lambda: there)
    assert run(plane, project, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "[1/5] kueue: would be built from its Go module and pushed" in said
    assert "[2/5] jobset: would be pushed; it was built before" in said
    assert "[4/5] falaj-inference: would be built by buildah and pushed" in said
    assert f"would be written: {project / LOCK}" in said
    assert plane.manifests == {}
    assert sorted(path for path in project.rglob("*")) == files
    assert not (project.parent / "cache").exists()


def test_our_own_images_are_built_on_bases_that_are_pushed_first(
    plane: Plane, project: Path, built: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The builder and crane are stand-ins here; who calls them is not."""
    done: list[str] = []
    digest = f"sha256:{'c' * 64}"

    def build(kept: Kept, variables: Any, wheels: Any, say: Any) -> None:
        work = plane.folder.parent / "work"
        work.mkdir()
        given = variables(work)
        assert given["SSL_CERT_DIR"].split(":")[0] == str(Files(plane.folder).certificates)
        assert f'location = "{plane.address}"' in (work / "registries.conf").read_text()
        for name, reference in kept.bases.items():
            # As pods name it, whatever the address of this run is.
            assert reference.startswith(f"{HOST}/falaj/{name}@sha256:")
            path = f"/v2/falaj/{name}/manifests/{reference.partition('@')[2]}"
            assert path in plane.manifests
        layout = kept.folder / "layout"
        layout.mkdir(parents=True)
        (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
        done.append("built")

    def push(image: Built, item: Any, address: str, key: None, pusher: Any) -> None:
        assert address == f"{plane.address}/falaj"
        assert image.digest == digest
        plane.manifests[f"/v2/falaj/{item.mirror}/manifests/{digest}"] = b""
        done.append("pushed")

    monkeypatch.setattr(bases, "image", lambda name: Image.of(name.encode(), {}))
    monkeypatch.setattr(Kept, "_build", build)
    monkeypatch.setattr(loading, "push_image", push)
    monkeypatch.setattr(loading, "Crane", lambda authority: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert run(plane, project, "falaj-inference") == 0
    assert done == ["built", "pushed"]
    entry = load(project / LOCK).images["falaj-inference"]
    assert entry.digest == digest
    assert entry.reference.startswith(f"{HOST}/falaj/falaj/inference:")
    capsys.readouterr()
    assert run(plane, project, "falaj-inference", "--dry-run") == 0
    assert f"{project / LOCK} would stay as it is" in capsys.readouterr().out
    (project / LOCK).unlink()
    assert run(plane, project, "falaj-inference", "--dry-run") == 0
    assert f"would be written: {project / LOCK}" in capsys.readouterr().out
    # Another control plane gets the image that is kept.
    plane.manifests.clear()
    assert run(plane, project, "falaj-inference") == 0
    assert done == ["built", "pushed", "pushed"]


def test_the_template_waives_what_the_platform_waives_and_one_more() -> None:
    platform, own = (
        read_waivers(ROOT / "stacks/waivers" / f"{name}.yaml", all_rules()).waivers
        for name in ("platform", "real-cluster")
    )
    more = [each for each in own if each not in platform]
    assert [each.id for each in more] == ["REAL-01"]
    assert len(own) > 1


def test_the_template_is_the_shipped_platform_in_a_small_size() -> None:
    template = yaml.safe_load((ROOT / "stacks/templates/real-cluster.yaml").read_text())["config"]
    large = shipped("onprem-cluster")
    assert set(template) - set(large) == {"falaj:images"}
    assert set(large) - set(template) == {"falaj:gateway"}
    same = ("falaj:registry", "falaj:region", "falaj:dataClass")
    assert {key: template[key] for key in same} == {key: large[key] for key in same}
    assert template["falaj:policies"]["packs"] == large["falaj:policies"]["packs"]
    assert f"/{template['falaj:images']}\n" in (ROOT / ".gitignore").read_text()


def test_who_asks_the_registry_of_a_control_plane_trusts_its_authority(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Files(plane.folder).authority
    monkeypatch.setenv(testplane.CLUSTER_VARIABLE, str(plane.folder / "kubeconfig"))
    assert testplane.authority_of(plane.address) is None  # no address of a control plane's network
    monkeypatch.setattr(testplane, "leads_to", lambda host: host == "127.0.0.1")
    assert testplane.authority_of(plane.address) == authority
    assert testplane.authority_of("127.0.0.1:1") is None
    assert testplane.authority_of("registry.example.ae") is None
    monkeypatch.setenv("SSL_CERT_DIR", "/own")
    assert crane.trusting(authority)["SSL_CERT_DIR"] == f"{authority.parent}:/own"


def test_the_registry_of_a_control_plane_is_in_the_country(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crane, "is_here", lambda host: host == "10.251.0.2")
    assert crane.require_in_country("10.251.0.2:443/falaj", crane.Settings(), "a test")
    with pytest.raises(crane.StackError, match="images are kept in the country"):
        crane.require_in_country("10.251.0.3:443/falaj", crane.Settings(), "a test")
