"""What a team does on the platform: it trains, publishes, serves and calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from falaj.engine.controlplane.volumes import folder_of
from tests.cluster.real.platform import (
    FLAVOR,
    Platform,
    tenants_pod,
    token,
)
from tests.cluster.real.realm import probe, wait_for

TRAINING, SERVING, OTHERS = "acme-training", "acme-serving", "bank-serving"
AUDIT: Final = "audit"
"""The claim with the service's audit logs, and with what its watch remembers."""
ISSUER: Final = "https://login.example.ae"
EPOCHS: Final = 60
"""Of the stack that ships."""
MODEL = "digits"
TEAM: Final = "real-workloads"
"""The team's stack, whose template ships."""


TRIALS: Final = 3
SIZE: Final = {
    "flavor": FLAVOR, "cpus": 0.5, "memoryGib": 2, "sharedMemoryGib": 0.5, "scratchGib": 1,
}  # fmt: skip
"""Of a pod that trains."""


def volume(platform: Platform, claim: str, namespace: str = TRAINING) -> Path:
    """The folder behind a claim."""

    files = platform.plane.files
    found: Path = wait_for(
        lambda: folder_of(files, platform.plane.objects, claim, namespace),
        f"the claim {claim} has a volume",
    )
    return found


def ended(platform: Platform, pod: str, namespace: str, seconds: float = 120) -> None:
    """Wait until a pod has succeeded."""

    def phase() -> str:
        return str(platform.realm.pod(pod, namespace).get("status", {}).get("phase"))

    try:
        wait_for(lambda: phase() in ("Succeeded", "Failed"), f"{pod} has ended", seconds)
    except TimeoutError as error:
        state = platform.realm.state(pod, namespace)
        raise AssertionError(f"{error}: {state}\n{platform.realm.events(namespace)}") from error
    assert phase() == "Succeeded", platform.realm.log(pod, namespace)


def gang(platform: Platform, attempt: int) -> dict[str, str]:
    """Machines of the pods of an attempt, by the pods' names."""
    key = "jobset.sigs.k8s.io/restart-attempt"
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get(key) == str(attempt)
    }


def events(platform: Platform, pods: dict[str, str]) -> list[dict[str, Any]]:
    """What the first process of a gang has told so far."""
    [first] = [each for each in pods if each.startswith("digits-node-0-0-")] or [""]
    lines = platform.realm.log(first, TRAINING).splitlines() if first else []
    return [json.loads(each) for each in lines if each.startswith("{") and each.endswith("}")]


def said_by(platform: Platform, component: str, namespace: str = TRAINING) -> str:
    """What the pods of a workload wrote, one after the other."""
    return "\n".join(
        platform.realm.log(each["metadata"]["name"], namespace)
        for each in platform.plane.objects.list("v1", "Pod", namespace)
        if each["metadata"].get("labels", {}).get("falaj.io/component") == component
    )


def told_in(said: str, event: str) -> list[dict[str, Any]]:
    """What pods have told of one kind, in lines of logs."""
    lines = (each.strip() for each in said.splitlines())
    found = [json.loads(each) for each in lines if each.startswith('{"event"') and each[-1] == "}"]
    return [each for each in found if each["event"] == event]


def sweep_of(dataset: str) -> dict[str, Any]:
    """The settings of a sweep whose trials read and write what is sealed."""
    return {
        **SIZE, "keySecret": "acme/training-keys",
        "dataset": dataset, "data": "data", "checkpoints": "runs",
        "trials": TRIALS, "parallel": 2, "pruner": "none",
        "search": {"learning_rate": "1e-3..1e-2:log", "width": "8|16"},
        "arguments": ["--epochs", "4", "--threads", "1"],
    }  # fmt: skip


def training(
    platform: Platform, epochs: int, name: str, arguments: Sequence[str] = (), **publish: Any
) -> None:
    """Have the team's stack train anew, with other parameters, beside the service that it has.

    Other parameters are another run, in a folder of its own: the job's name.
    """
    config = platform.read(TEAM)
    [job] = config["falaj:trainingJobs"].values()
    job["arguments"] = [
        "--epochs", str(epochs), "--patience", str(epochs), "--threads", "1", *arguments,
    ]  # fmt: skip
    job["publish"] |= publish
    platform.write(TEAM, {**config, "falaj:trainingJobs": {name: job}})
    platform.up(TEAM)


def of_publication(platform: Platform) -> list[dict[str, Any]]:
    """The pods that judge, sign and send."""
    key = "jobset.sigs.k8s.io/replicatedjob-name"
    return [
        each for each in platform.plane.objects.list("v1", "Pod", TRAINING)
        if each["metadata"].get("labels", {}).get(key) == "publish"
    ]  # fmt: skip


def delivered(platform: Platform, version: int) -> dict[str, Any]:
    """Wait until a version was delivered; what its pod said of it."""

    def said() -> dict[str, Any] | None:
        for pod in of_publication(platform):
            name = pod["metadata"]["name"]
            assert pod["status"].get("phase") != "Failed", [
                platform.realm.log(name, TRAINING, container=each)
                for each in ("keys", "optimise", "signing-keys", "publish")
            ]
            lines = platform.realm.log(name, TRAINING, container="publish").splitlines()
            for line in lines:
                if line.startswith("{") and json.loads(line)["version"] == version:
                    return json.loads(line)
        return None

    wait_for(lambda: said() is not None, f"version {version} is delivered", 300)
    found = said()
    assert found is not None
    return found


def told(said: str) -> dict[str, Any]:
    """The object that a command printed, after what it said meanwhile."""
    found: dict[str, Any] = json.loads(said[said.index("{") :])
    return found


_ASK = """
import json, signal, socket, ssl, sys, time, urllib.error, urllib.request
context = ssl.create_default_context(cadata=CA)
context.minimum_version = ssl.TLSVersion.TLSv1_3
headers = {"Authorization": "Bearer " + TOKEN} if TOKEN else {}
inputs = [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]
def ask():
    request = urllib.request.Request(
        "https://digits.acme-serving.svc:8443/v2/models/digits/infer",
        json.dumps({"inputs": inputs}).encode(), headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            return [answer.status, json.load(answer)["model_version"]]
    except urllib.error.HTTPError as error:
        return [error.code, ""]
    except OSError as error:
        return [0, repr(error)]
"""
ONCE = "print(json.dumps(ask()))"
#: Black pictures only, window after window: several have to differ.
DRIFTING = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
inputs[0] |= {"shape": [50, 1, 8, 8], "data": [0.0] * 64 * 50}
while True:
    print(json.dumps(ask()))
    time.sleep(0.2)
"""
_OF_EACH_VERSION = """
import http.client
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
def ask(version, body):
    host = "digits.acme-serving.svc"
    made = http.client.HTTPSConnection(host, 8443, timeout=5, context=context)
    plain = socket.create_connection((f"digits-v{version}.acme-serving.svc", 8443), 5)
    made.sock = context.wrap_socket(plain, server_hostname=host)
    made.request("POST", "/v2/models/digits/infer", body, headers)
    status = made.getresponse().status
    made.close()
    return status
good = json.dumps({"inputs": inputs})
while True:
    try:
        print(json.dumps([ask(1, good), ask(2, %s)]))
    except OSError as error:
        print(error)
    time.sleep(0.02)
"""
#: Each version has a service of its own.
PASSING = _OF_EACH_VERSION % "good"
#: Version 1 gets what it can answer, and version 2 what it can't.
FAILING = _OF_EACH_VERSION % '"{}"'
ALWAYS = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while True:
    print(json.dumps(ask()))
    time.sleep(0.02)
"""


def propose(platform: Platform, ring: Path, version: int) -> None:
    """Have people decide that a version is tried, once more where it was tried before."""
    platform.falaj(
        "models", "promote", platform.registry, MODEL, "--version", str(version),
        "--alias", "candidate", "--keyring", str(ring), "--stack", TEAM,
    )  # fmt: skip
    platform.up(TEAM)


def caller(platform: Platform, name: str, namespace: str, token: str, program: str) -> None:
    text = f"CA = {platform.issuer!r}\nTOKEN = {token!r}\n{_ASK}\n{program}"
    account = {"serviceAccountName": "scoring"} if namespace == SERVING else {}
    pod = probe(
        name, namespace, platform.image("falaj-inference"), text, command=("python", "-c"),
        **account,
    )  # fmt: skip
    platform.plane.apply([tenants_pod(pod)])


def answers(platform: Platform, name: str, namespace: str) -> list[list[Any]]:
    lines = platform.realm.log(name, namespace).splitlines()
    return [json.loads(each) for each in lines if each.startswith("[") and each.endswith("]")]


def valid(platform: Platform, ring: Path) -> str:
    return token(platform.project, ring, ISSUER, "falaj:acme:digits")
