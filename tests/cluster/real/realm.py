"""A control plane with real machines, and what tests ask of it."""

from __future__ import annotations

import contextlib
import http
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from falaj.engine.controlplane import ControlPlane, Site, bases, objects, start

REGION = "abudhabi-dc1"
HOST = f"registry.{REGION}.example.ae"
PYTHON = "/usr/bin/python3"
SECONDS = 240.0
"""How long anything may take at the least on a slow machine; nothing is measured here."""
#: As every pod of a tenant has to be.
UNPRIVILEGED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
NON_ROOT: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def wait_for(ready: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Call `ready` until its answer is true, and return that."""
    return objects.wait_for(ready, what, max(seconds, SECONDS))


@dataclass
class Realm:
    """The control plane, and images by short name."""

    plane: ControlPlane
    images: dict[str, str] = field(default_factory=dict[str, str])
    """References with digests, by a host's name in the country."""

    @property
    def api(self) -> CoreV1Api:
        """The official client, for what isn't an object: logs, commands, ports."""
        return CoreV1Api(self.plane.client)

    def push_base(self, name: str = "base-distroless") -> str:
        """A Python and nothing else, which probes are written in; its reference."""
        if name not in self.images:
            digest = self.plane.real.registry.push(f"falaj/{name}", bases.image(name))
            self.images[name] = f"{HOST}/falaj/{name}@{digest}"
        return self.images[name]

    def log(self, pod: str, namespace: str, **more: Any) -> str:
        """What a pod's container wrote; empty where it didn't begin yet."""
        with contextlib.suppress(ApiException):
            return str(self.api.read_namespaced_pod_log(pod, namespace, **more))
        return ""

    def run(self, pod: str, namespace: str, *words: str, seconds: float = 30) -> tuple[int, str]:
        """Run a command in a pod's container; its status and what it wrote."""
        answer = stream(
            self.api.connect_get_namespaced_pod_exec, pod, namespace, command=list(words),
            stdout=True, stderr=True, stdin=False, tty=False, _preload_content=False,
        )  # fmt: skip
        answer.run_forever(timeout=seconds)
        said = "".join(answer.read_channel(channel) for channel in (1, 2))
        told: dict[str, Any] = json.loads(answer.read_channel(3) or "{}")
        answer.close()
        if told.get("status") == "Success":
            return 0, said
        causes = (told.get("details") or {}).get("causes") or []
        codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
        return (int(codes[0]) if codes else -1), said + str(told.get("message", ""))

    def pod(self, name: str, namespace: str) -> dict[str, Any]:
        """A pod as it is; empty where there is none."""
        return self.plane.objects.get("v1", "Pod", name, namespace) or {}

    def state(self, name: str, namespace: str) -> dict[str, Any]:
        """What the kubelet says of a pod's first container; empty before it says anything."""
        found = self.pod(name, namespace).get("status", {}).get("containerStatuses") or [{}]
        return dict(found[0])

    def is_ready(self, name: str, namespace: str) -> bool:
        """Whether a pod is ready."""
        conditions = self.pod(name, namespace).get("status", {}).get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def wait_ready(self, *names: str, namespace: str) -> None:
        """Wait until pods are ready; what they said is in the error where they don't get so."""
        try:
            wait_for(
                lambda: all(self.is_ready(each, namespace) for each in names),
                f"{', '.join(names)} are ready",
            )
        except TimeoutError as error:
            said = {each: (self.state(each, namespace), self.log(each, namespace)[-500:])
                    for each in names}  # fmt: skip
            raise AssertionError(f"{error}\n{said}\n{self.events(namespace)}") from error

    def events(self, namespace: str) -> list[str]:
        """What the cluster said of objects in a namespace."""
        return [
            f"{each['involvedObject'].get('name')}: {each.get('reason')}: {each.get('message')}"
            for each in self.plane.objects.list("v1", "Event", namespace)
        ]

    @contextmanager
    def namespace(self, name: str, **labels: str) -> Generator[str]:
        """A namespace of its own."""
        about = {"name": name, "labels": labels}
        self.plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": about}])
        account = ("v1", "ServiceAccount", "default", name)
        wait_for(lambda: self.plane.objects.get(*account), f"the service account of {name}")
        try:
            yield name
        finally:
            self.plane.objects.delete("v1", "Namespace", name)


def probe(
    name: str, namespace: str, image: str, program: str, *,
    labels: Mapping[str, str] | None = None, command: Sequence[str] = (PYTHON, "-u", "-c"),
    **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    """A pod with a program in Python that may do nothing else."""
    container = {
        "name": "main", "image": image, "command": [*command, program],
        "securityContext": dict(UNPRIVILEGED),
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        **spec.pop("container", {}),
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {
            "securityContext": dict(NON_ROOT),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
            **spec,
        },
    }  # fmt: skip


_SERVE = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *_): pass
for port in PORTS:
    server = http.server.ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""
WAIT = "import signal; signal.pause()"


def serving(*ports: int) -> str:
    """A program that answers HTTP at each port."""
    return f"PORTS = {ports!r}\n{_SERVE}"


SERVE = serving(8080)


def is_reached(realm: Realm, pod: str, namespace: str, host: str, port: int = 8080) -> bool:
    """Whether a pod gets a connection to a host."""
    program = f"import socket; socket.create_connection(({host!r}, {port}), 2).close()"
    return realm.run(pod, namespace, PYTHON, "-c", program)[0] == 0


@contextmanager
def realm_with(folder: Path, machines: int, **more: Any) -> Generator[Realm]:
    """A control plane with so many real machines."""
    with start(
        folder, real=machines, site=Site(REGION, (f"{REGION}-1",), "existing"), **more
    ) as plane:
        yield Realm(plane)


def is_gone(realm: Realm, pod: str, namespace: str) -> bool:
    """Whether a pod's object is gone."""
    try:
        return realm.plane.objects.get("v1", "Pod", pod, namespace) is None
    except ApiException as error:
        return error.status == http.HTTPStatus.NOT_FOUND
