"""A service that changes while it is called: no request fails."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.real.platform import Platform
from tests.cluster.real.realm import wait_for
from tests.cluster.real.team import SERVING, TEAM, answers, caller, valid

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

#: Eight clients that keep their connections and two that open one for each request. A kept one is
#: used until the server ends it, and never where its end has been read already: what then fails
#: was under way. Each second's answers are told, by the pod's version and the kind of client.
CALLERS = """
import http.client, select, threading
from collections import Counter
told, lock = Counter(), threading.Lock()
body = json.dumps({"inputs": inputs}).encode()
def connect():
    host = "digits.acme-serving.svc"
    made = http.client.HTTPSConnection(host, 8443, timeout=10, context=context)
    made.connect()
    return made
def call(kind, pause):
    kept = None
    while True:
        try:
            if kept and (kept.sock is None or select.select([kept.sock], [], [], 0)[0]):
                kept.close(); kept = None
            kept = kept or connect()
            kept.request("POST", "/v2/models/digits/infer", body, headers)
            answer = kept.getresponse()
            answer.read()
            outcome = (kind, answer.status)
        except (OSError, http.client.HTTPException) as error:
            outcome, kept = (kind, repr(error)), None
        if kept and kind == "once":
            kept.close(); kept = None
        with lock:
            told[outcome] += 1
        time.sleep(pause)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
for kind, pause, count in (("kept", 0.01, 4), ("kept", 0.1, 4), ("once", 0.05, 2)):
    for _ in range(count):
        threading.Thread(target=call, args=(kind, pause), daemon=True).start()
while True:
    time.sleep(1)
    with lock:
        print(json.dumps([[*key, count] for key, count in told.items()]), flush=True)
        told.clear()
"""


def another_image(platform: Platform, name: str) -> str:
    """Push the same files under another configuration, as a newer image; its digest."""
    registry = platform.plane.real.registry
    host, _, port = registry.address.partition(":")
    context = ssl.create_default_context(cafile=str(registry.authority))
    _, _, there = platform.image(name).partition("/")
    repository, _, digest = there.partition("@")

    def ask(method: str, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        connection.request(method, f"/v2/{repository}/{path}", body, {"Content-Type": kind})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status in (200, 201), (method, path, answer.status, said)
        return said

    manifest: dict[str, Any] = json.loads(ask("GET", f"manifests/{digest}"))
    config: dict[str, Any] = json.loads(ask("GET", f"blobs/{manifest['config']['digest']}"))
    config["config"]["Labels"] = {**(config["config"].get("Labels") or {}), "newer": "1"}
    blob = json.dumps(config).encode()
    found = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    ask("POST", f"blobs/uploads/?digest={found}", blob, "application/octet-stream")
    manifest["config"] |= {"digest": found, "size": len(blob)}
    newer = json.dumps(manifest).encode()
    found = f"sha256:{hashlib.sha256(newer).hexdigest()}"
    ask("PUT", f"manifests/{found}", newer, manifest["mediaType"])
    return found


def serving_pods(platform: Platform) -> dict[str, str]:
    """Digests of the image that the service's pods run, by the pods' names."""
    return {
        each["metadata"]["name"]: each["spec"]["containers"][0]["image"].partition("@")[2]
        for each in platform.plane.objects.list("v1", "Pod", SERVING)
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "inference"
    }


def test_a_newer_image_takes_over_without_a_failed_request(
    platform: Platform, ring: Path, served: dict[str, Any]
) -> None:
    caller(platform, "callers", SERVING, valid(platform, ring), CALLERS)
    wait_for(lambda: len(answers(platform, "callers", SERVING)) > 2, "callers call")
    before = serving_pods(platform)
    lock = yaml.safe_load(platform.lock.read_text())
    newer = another_image(platform, "falaj-inference")
    lock["images"]["falaj-inference"]["digest"] = newer
    platform.lock.write_text(yaml.safe_dump(lock))
    platform.up(TEAM)
    wait_for(lambda: set(serving_pods(platform).values()) == {newer}, "the older replica is gone")
    assert not set(before) & set(serving_pods(platform))
    time.sleep(2)
    counted: Counter[tuple[str, int | str]] = Counter()
    for second in answers(platform, "callers", SERVING):
        for kind, outcome, count in second:
            counted[kind, outcome] += count
    platform.realm.api.delete_namespaced_pod("callers", SERVING, grace_period_seconds=1)
    assert set(counted) == {("kept", 200), ("once", 200)}, counted
    assert min(counted.values()) > 100, counted
