"""One control plane for all cluster tests of a session, clean for each module."""

from __future__ import annotations

import http
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane import ControlPlane, binaries, start
from falaj.engine.controlplane.objects import wait_for
from falaj.engine.gobuild import module_folders
from falaj.engine.progress import to_stderr
from falaj.sandbox.charts import library
from tests.cluster.leftovers import restored
from tests.cluster.residency_cases import RESIDENCY
from tests.cluster.residency_cluster import residence

#: Of a test with its fixtures: the session's first also waits for the control plane, and each
#: module's last until what the module made is gone; both take minutes on a loaded machine.
TIMEOUT_SECONDS = 900
SHOWN_LOGS = ("kueue", "kube-controller-manager")
SHOWN_LINES = 40
TRAINER = "github.com/kubeflow/trainer/v2"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of this folder the time that they need."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker(
            "timeout"
        ):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def judged() -> Generator[Callable[[ControlPlane], None]]:
    """A policy whose expression can't be evaluated denies whoever asks, controllers as well.

    They try again, so that no test need fail by it: what API servers answered says it. Each
    control plane is looked at when a test ends it; one that a command ends is given to this.
    """
    found: list[str] = []
    stop = ControlPlane.stop

    def look_at(plane: ControlPlane) -> None:
        if plane.files.audit_log.is_file():
            with plane.files.audit_log.open(encoding="utf-8") as lines:
                found.extend(each for each in lines if "resulted in error" in each)

    def end(plane: ControlPlane) -> None:
        look_at(plane)
        stop(plane)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlPlane, "stop", end)
        yield look_at
    assert not found, "\n".join(found[:10])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show beside a failure what the controllers of its control planes said last."""
    report = yield
    if report.failed:
        values = vars(item).get("funcargs", {}).values()
        parts = [
            part for each in values for part in (each, *getattr(each, "__dict__", {}).values())
        ]
        planes = {id(each): each for each in parts if isinstance(each, ControlPlane)}
        for plane in planes.values():
            for name in SHOWN_LOGS:
                path = plane.files.logs / f"{name}.log"
                if path.is_file():
                    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                    report.sections.append((f"the end of {path}", "\n".join(lines[-SHOWN_LINES:])))
    return report


@pytest.fixture(scope="session")
def control_plane() -> Generator[ControlPlane]:
    """A control plane as `make cluster` starts it, without nodes: a test says which it needs."""
    with start(controllers=binaries.CONTROLLERS) as plane:
        yield plane


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Generator[ControlPlane]:
    """The session's control plane for one module: what the module made is removed after it."""
    with restored(control_plane):
        yield control_plane


@pytest.fixture(scope="session")
def residency_plane() -> Generator[ControlPlane]:
    """A control plane with two nodes that refuses what `Residency` has it refuse."""
    with residence(RESIDENCY, nodes="cpu=2") as plane:
        plane.define("gateway-api", "keda")
        plane.define("external-secrets", kinds=("ExternalSecret",))
        yield plane


@pytest.fixture(scope="session")
def charts_of_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the charts that lie in Go modules, as their projects publish them."""
    folder = tmp_path_factory.mktemp("charts")
    assert library.add((), folder)
    return folder


@pytest.fixture(scope="session")
def trainer_definitions(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The definitions of Trainer, without those of JobSet beside them."""
    scratch = tmp_path_factory.mktemp("definitions") / "module"
    module = binaries.built()["trainer"].module
    folder = module_folders(module, [TRAINER], scratch, to_stderr)[TRAINER]
    files = sorted((folder / "manifests/base/crds").glob("trainer*.yaml"))
    assert files
    return [each for file in files for each in yaml.safe_load_all(file.read_text("utf-8")) if each]


@pytest.fixture(scope="module")
def charts(charts_of_modules: Path) -> Generator[Path]:
    """Those charts, for whatever the module's tests run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(library.CHARTS_VARIABLE, str(charts_of_modules))
        yield charts_of_modules


@pytest.fixture
def namespace(cluster: ControlPlane) -> Generator[str]:
    """A namespace of its own for one test, without rules of a tenant."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    account = ("v1", "ServiceAccount", "default", name)
    wait_for(lambda: cluster.objects.get(*account), f"the service account of {name}")
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "known", "namespace": name},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }  # fmt: skip

    def known() -> bool:
        """Whether Kueue, which is asked about each pod, has heard of the namespace."""
        try:
            cluster.apply([pod], dry_run=True)
        except ApiException as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    wait_for(known, f"Kueue to know {name}")
    yield name
    cluster.objects.delete("v1", "Namespace", name)
