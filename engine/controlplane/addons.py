"""What a control plane gets beside its core: definitions, and controllers with their webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from falaj.engine.controlplane import binaries, controllers, processes
from falaj.engine.controlplane.bringup import MASTERS, READY_PATH, READY_SECONDS, Given
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.objects import MANAGER, Objects, wait_for
from falaj.engine.controlplane.processes import Files, answers_plainly, listens, wait_until

# APIs that charts add to the API server, on a control plane where their pods are simulated.
#
# Nobody would answer: the API server would look for them at addresses that aren't of this
# machine, its discovery would stay incomplete, and no namespace could ever be deleted. So such an
# APIService is made a local one, as webhooks are not called there either.

_API: Final = "admissionregistration.k8s.io/v1"
_NAME: Final = "falaj-simulated-apis"
_FIELDS: Final = ("caBundle", "insecureSkipTLSVerify")
_SECONDS: Final = 30.0


def keep_local(objects: Objects, manager: str) -> None:
    """Have the API server make each APIService a local one; returns once it does.

    Raises TimeoutError where it doesn't take the policy in.
    """
    objects.apply(_POLICY, manager)
    wait_for(
        lambda: "service" not in objects.apply([_PROBE], manager, dry_run=True)[0]["spec"],
        "APIServices are local",
        _SECONDS,
    )


def _removed(field: str) -> str:
    return f'(has(object.spec.{field}) ? [JSONPatch{{op: "remove", path: "/spec/{field}"}}] : [])'


_POLICY: Final[list[dict[str, Any]]] = [
    {
        "apiVersion": _API, "kind": "MutatingAdmissionPolicy", "metadata": {"name": _NAME},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": ["apiregistration.k8s.io"], "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["apiservices"],
                }],
            },
            "matchConditions": [{"name": "remote", "expression": "has(object.spec.service)"}],
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": '[JSONPatch{op: "remove", path: "/spec/service"}] + '
                    + " + ".join(_removed(field) for field in _FIELDS)
                },
            }],
        },
    },
    {
        "apiVersion": _API, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME},
    },
]  # fmt: skip
_PROBE: Final[dict[str, Any]] = {
    "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
    "metadata": {"name": "v1.probe.falaj.test"},
    "spec": {
        "group": "probe.falaj.test", "version": "v1", "groupPriorityMinimum": 100,
        "versionPriority": 100, "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "probe"},
    },
}  # fmt: skip


DEFINITIONS = "crds"
"""The module of definitions alone."""
_DEFINITION = "CustomResourceDefinition"
#: By this the sandbox tells a test control plane from a real cluster behind a tunnel.
MARK = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "falaj-test-control-plane", "namespace": "kube-system"},
    "data": {"nodes": "simulated"},
}
#: Definitions of add-ons whose charts can't be had as Go modules: what a platform declares of
#: their kinds needs them. The other charts bring their own.
BARE_DEFINITIONS = (
    "external-secrets", "prometheus-operator", "istio", "keda", "kserve", "gpu-operator", "velero",
)  # fmt: skip
#: Where machines are real, those as well whose charts can be had, but whose programs can't run
#: there: no image of them is made on this computer.
REAL_DEFINITIONS = (*BARE_DEFINITIONS, "cert-manager", "gateway-api")


def add(given: Given) -> None:
    """Install definitions and what the controllers of the settings need; `run` starts these.

    The API server alone has to run. Raises EngineError: a name that isn't known.
    """
    settings, files = given.settings, given.files
    objects = Objects.of(str(files.kubeconfig))
    try:
        system = ("v1", "Namespace", "kube-system")
        wait_for(lambda: objects.get(*system), "the API server has its namespaces", _SECONDS)
        objects.apply([MARK], MANAGER)
        if not settings.webhooks:
            keep_local(objects, MANAGER)
        install_definitions(objects, definitions(settings.definitions))
        for controller in _chosen(given):
            _install(controller, given, objects)
    finally:
        objects.close()


def run(given: Given) -> None:
    """Start the controllers, for which all is there.

    Raises EngineError: one of them ended or doesn't get ready.
    """
    settings, files, started = given.settings, given.files, _chosen(given)
    for controller in started:
        command = controllers.command(
            controller,
            Path(settings.binaries[controller.name]) / controller.name,
            _file(controller, files, "json"),
            _file(controller, files, "kubeconfig"),
        )
        folder = controllers.certificates_folder(controller, files)
        environment = controllers.environment(controller, folder)
        given.supervisor.start(controller.name, command, environment)
    for controller in started:
        wait_until(
            partial(_is_ready, controller), given.supervisor, controller.name, READY_SECONDS
        )


def _chosen(given: Given) -> list[controllers.Controller]:
    known = controllers.known(list(given.ports.controllers))
    return [known[name] for name in given.settings.controllers]


def _file(controller: controllers.Controller, files: Files, kind: str) -> Path:
    return files.configuration(f"{controller.name}.{kind}")


def _is_ready(controller: controllers.Controller) -> bool:
    """Kueue says that it is ready before its webhooks are served: it starts twice."""
    return listens(controller.webhook_port) and answers_plainly(controller.health_port, READY_PATH)


def definitions(names: Sequence[str]) -> list[dict[str, Any]]:
    """The CRDs of add-ons, as far as they work without their controllers.

    Raises EngineError for a name that isn't known.
    """
    module = binaries.built()[DEFINITIONS]
    return [
        _without_conversion(document)
        for name in names
        for document in module.documents(name)
        if document["kind"] == _DEFINITION
    ]


def install_definitions(objects: Objects, wanted: list[dict[str, Any]]) -> None:
    """Create those definitions that are not there; wait until the API server serves all."""
    # Applying long definitions costs the API server far more than creating them.
    objects.create_all(wanted)
    missing = [each["metadata"]["name"] for each in wanted]

    def served() -> bool:
        while missing:
            found = objects.get("apiextensions.k8s.io/v1", _DEFINITION, missing[-1])
            if found is None or not _is_established(found):
                return False
            missing.pop()
        return True

    wait_for(served, f"{len(wanted)} definitions are served", READY_SECONDS)


def _install(controller: controllers.Controller, given: Given, objects: Objects) -> None:
    settings, files = given.settings, given.files
    module = binaries.built()[controller.name]
    secret = controllers.certificates(controller, files)
    folder = controllers.certificates_folder(controller, files)
    documents = controllers.localised(
        controller,
        [*module.documents("definitions"), *module.documents("webhooks")],
        (folder / "ca.crt").read_bytes(),
    )
    namespace = {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": controller.namespace},
    }  # fmt: skip
    install_definitions(objects, [each for each in documents if each["kind"] == _DEFINITION])
    objects.apply([namespace, secret], MANAGER)
    objects.apply([each for each in documents if each["kind"] in controllers.KINDS], MANAGER)
    client = Authority(files.certificates).client(
        controller.user, (MASTERS,), file=f"{controller.name}-client"
    )
    processes.write_private(
        _file(controller, files, "kubeconfig"),
        processes.kubeconfig(given.ports.server, files.authority, client),
    )
    asked = settings.controller_settings.get(
        controller.name, controllers.platforms(controller.name)
    )
    processes.write_private(
        _file(controller, files, "json"),
        controllers.configuration(controller, asked, folder),
    )


def _without_conversion(definition: dict[str, Any]) -> dict[str, Any]:
    """Its controller doesn't run here: nobody could convert between versions."""
    spec = {key: value for key, value in definition["spec"].items() if key != "conversion"}
    metadata = {
        key: value
        for key, value in definition["metadata"].items()
        if key in {"name", "labels", "annotations"}
    }
    return {
        "apiVersion": definition["apiVersion"], "kind": _DEFINITION, "metadata": metadata,
        "spec": spec,
    }  # fmt: skip


def _is_established(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
