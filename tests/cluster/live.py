"""Projects whose Kubernetes objects the sandbox applies to the test control plane."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from falaj.engine.install import ensure_engine
from falaj.engine.launch import additions
from falaj.sandbox import activation
from tests.engine.conftest import Project

YAML = """
import json, pathlib, pulumi

def declare(name, manifest, kind, **options):
    version = manifest["apiVersion"]
    token = f"kubernetes:{version if '/' in version else 'core/' + version}:{kind}"
    return pulumi.CustomResource(
        token, name, manifest, pulumi.ResourceOptions(version="4.34.2", **options)
    )

made = {}
for entry in json.loads(pathlib.Path("objects.json").read_text()):
    options = dict(entry.get("options", {}))
    options["depends_on"] = [made[name] for name in options.get("depends_on", [])]
    kind = entry["manifest"]["kind"] + ("Patch" if entry.get("patches") else "")
    made[entry["name"]] = declare(entry["name"], entry["manifest"], kind, **options)
"""


class LiveProject:
    """A project in the sandbox whose cluster is the test control plane; stack ``dev``."""

    def __init__(self, folder: Path, kubeconfig: Path, **more: str) -> None:
        real = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PULUMI_", "FALAJ_SANDBOX"))
        }
        named = {"FALAJ_HOME": str(folder / "data"), "FALAJ_SANDBOX_CLUSTER": str(kubeconfig)}
        base = activation.activated({**real, **named, **more})
        home = folder / "project"
        home.mkdir()
        (home / "environment").symlink_to(sys.prefix)
        (home / "Pulumi.yaml").write_text(
            "name: live\nruntime: {name: python, options: {virtualenv: environment}}\n",
            encoding="utf-8",
        )
        engine = ensure_engine()
        self.project = Project(home, {**base, **additions(engine, base)}, engine.path)
        self.project.program(YAML)
        self.project.run("stack", "init", "dev")

    def declare(self, *entries: dict[str, Any]) -> None:
        """Say which objects the program declares."""
        (self.project.folder / "objects.json").write_text(json.dumps(entries), encoding="utf-8")

    def up(self, *more: str, code: int | None = 0) -> str:
        """`pulumi up` without its preview."""
        return self.project.run("up", "--yes", "--skip-preview", "-s", "dev", *more, code=code)

    def preview(self, code: int | None = 0) -> str:
        """`pulumi preview`."""
        return self.project.run("preview", "-s", "dev", code=code)

    def refresh(self) -> str:
        """`pulumi refresh`."""
        return self.project.run("refresh", "--yes", "--skip-preview", "-s", "dev")

    def destroy(self, code: int | None = 0) -> str:
        """`pulumi destroy`."""
        return self.project.run("destroy", "--yes", "--skip-preview", "-s", "dev", code=code)

    def state(self) -> dict[str, dict[str, Any]]:
        """The resources of the stack's state by name."""
        exported = json.loads(self.project.run("stack", "export", "-s", "dev"))
        resources = exported["deployment"].get("resources", [])
        return {each["urn"].split("::")[-1]: each for each in resources}


def entry(name: str, manifest: dict[str, Any], **options: Any) -> dict[str, Any]:
    """An object of the program, with options of its resource."""
    return {"name": name, "manifest": manifest, "options": options}


def patch(name: str, manifest: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What the program says of an object that something else makes."""
    return {**entry(name, manifest, **options), "patches": True}


def config_map(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    """A small object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "data": {"a": "b"},
    }


def deployment(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """One pod that the control plane's machines simulate."""
    labels = {"app": name}
    pod = {
        "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}],
        **spec.pop("pod", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **spec.pop("metadata", {})},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


def definition(group: str) -> dict[str, Any]:
    """The definition of a kind ``Widget`` with one field."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def widget(group: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """An object of that kind."""
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": namespace},
        "spec": spec,
    }


def ingress(name: str, namespace: str, **metadata: Any) -> dict[str, Any]:
    """One that serves no service: a resource of its controller's."""
    backend = {"resource": {"apiGroup": "example.org", "kind": "Bucket", "name": "pages"}}
    path = {"path": "/", "pathType": "ImplementationSpecific", "backend": backend}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": "a.example.ae", "http": {"paths": [path]}}],
        },
    }
