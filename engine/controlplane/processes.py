"""The control plane's processes: files, command lines, how they run, whether they answer."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falaj.engine.controlplane.certificates import Pair
from falaj.engine.errors import EngineError
from falaj.engine.files import replace_file
from falaj.engine.guard import guarded

# Files that the control plane's components read: access, audit, encryption, scheduling.

CLUSTER = "falaj-test"
FRONT_PROXY = "front-proxy"
"""Who the API server is for APIs that pods serve; only its own authority can say so."""
SECRETBOX_KEY_BYTES = 32
"""https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/#providers"""
CALLS_PER_SECOND = 1000
"""Of each component to the API server: the vendor's 50 would be what a scale test measures."""
GO: Mapping[str, str] = {"GOGC": "300", "GOMEMLIMIT": "2GiB"}
"""A program's memory grows to four times what it keeps before Go collects garbage, not to twice;
beyond the limit it does so more often. By default that takes nearly half of the API server's time
while definitions and policies come; a higher limit makes no further difference to whole platforms.
"""
UNUSED_CONTROLLERS = ("validatingadmissionpolicy-status-controller",)
"""It compiles every expression of a policy anew for each kind that the policy matches, to warn of
types in the policy's status, which nothing reads; for each status the API server compiles the
policy again. What is admitted doesn't depend on it."""

#: Resources whose content is secret: the audit log keeps who touched them, not what was in them.
_SECRET = [{"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]}]
_NOISE = [
    "system:kube-scheduler", "system:kube-controller-manager", "system:apiserver", "kwok",
]  # fmt: skip


def kubeconfig(server: str, authority: Path, pair: Pair, namespace: str = "default") -> str:
    """A kubeconfig with everything inside, so that it may be copied: JSON, which is YAML too."""

    def inside(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user = pair.certificate.stem
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": CLUSTER,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": inside(authority),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": inside(pair.certificate),
                        "client-key-data": inside(pair.key),
                    },
                }
            ],
            "contexts": [
                {
                    "name": CLUSTER,
                    "context": {"cluster": CLUSTER, "user": user, "namespace": namespace},
                }
            ],
            "current-context": CLUSTER,
        },
        indent=1,
    )


def audit_policy() -> dict[str, Any]:
    """Who did what: bodies of requests for roles and policies, metadata of everything else.

    The components' own steady traffic is left out.
    """
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": _NOISE},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "None", "verbs": ["get", "list", "watch"], "nonResourceURLs": ["*"]},
            {"level": "Metadata", "resources": _SECRET},
            {
                "level": "Request",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": [
                    {"group": "rbac.authorization.k8s.io"},
                    {"group": "admissionregistration.k8s.io"},
                ],
            },
            {"level": "Metadata"},
        ],
    }


def encryption() -> dict[str, Any]:
    """Secrets and config maps are encrypted in etcd with a key made for this control plane."""
    key = base64.b64encode(secrets.token_bytes(SECRETBOX_KEY_BYTES)).decode()
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets", "configmaps"],
                "providers": [
                    {"secretbox": {"keys": [{"name": "key1", "secret": key}]}},
                    {"identity": {}},
                ],
            }
        ],
    }


def scheduler_configuration(kubeconfig_path: Path) -> dict[str, Any]:
    """kube-scheduler's own configuration: its default profile, without the limit on calls."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(kubeconfig_path),
            "qps": CALLS_PER_SECOND,
            "burst": 2 * CALLS_PER_SECOND,
        },
    }


def write_private(path: Path, content: dict[str, Any] | str) -> Path:
    """Write `content` (a dict as JSON) such that only this user can read it; return the path."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    replace_file(path, text, 0o600)
    return path


# Command lines of the control plane's processes.

LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
"""The address of the service `kubernetes`: the first of the range."""
RESOLVER = "10.96.0.10"
"""The address of the service `kube-dns`, where one runs."""
CLUSTER_DOMAIN = "cluster.local"

#: A machine counts as dead after this time without a renewal of its lease (the vendor's default
#: is 50), so that tests of dying machines needn't wait. kwok renews a lease after a quarter of its
#: duration: one renewal may fail or be late, as happens on a loaded computer.
NODE_GRACE_SECONDS = 24
NODE_LEASE_SECONDS = 40
#: Pods stay this long on a machine that doesn't answer, unless they say otherwise (default: 300).
TOLERATION_SECONDS = 10


@dataclass(frozen=True)
class Ports:
    """Loopback ports, one per listener."""

    etcd: int
    etcd_peer: int
    api: int
    scheduler: int
    controller_manager: int
    kwok: int
    controllers: tuple[int, ...] = ()
    registry: int = 0

    @property
    def server(self) -> str:
        """The API server's address, for what runs beside it."""
        return self.server_at(LOOPBACK)

    def server_at(self, address: str) -> str:
        """The API server's address, for who reaches it there."""
        return f"https://{address}:{self.api}"


@dataclass(frozen=True)
class Files:
    """Where everything of one control plane lies."""

    folder: Path

    @property
    def certificates(self) -> Path:
        """Folder of the authority's and everyone's certificates."""
        return self.folder / "certificates"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs."""
        return self.folder / "logs"

    @property
    def machines(self) -> Path:
        """Folder of real machines."""
        return self.folder / "machines"

    def machine(self, name: str) -> Path:
        """A real machine's folder."""
        return self.machines / name

    @property
    def away(self) -> Path:
        """While this file is there, the host keeps no process running."""
        return self.folder / "away"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line."""
        return self.logs / "audit.log"

    def configuration(self, name: str) -> Path:
        """A component's configuration file."""
        return self.folder / "configuration" / name

    def pair(self, name: str) -> Pair:
        """A certificate and its key."""
        return _pair(self.certificates, name)

    @property
    def front_proxy(self) -> Path:
        """Folder of the authority that the API server has for asking APIs which pods serve."""
        return self.certificates / FRONT_PROXY

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.certificates / "ca.crt"


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


def etcd(binary: Path, files: Files, ports: Ports) -> list[str]:
    """One member, TLS with client certificates; the data doesn't outlive the control plane."""
    own = files.pair("etcd")
    client, peer = f"https://{LOOPBACK}:{ports.etcd}", f"https://{LOOPBACK}:{ports.etcd_peer}"
    return [
        str(binary),
        "--name=falaj",
        f"--data-dir={files.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=falaj={peer}",
        *_tls("", own, files),
        *_tls("peer-", own, files),
        # Nobody needs the data after a crash of the machine.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    ]


def api_server(
    binary: Path, files: Files, ports: Ports, *, webhooks: bool, address: str | None = None
) -> list[str]:
    """RBAC and Node authorisation, certificates and service account tokens, encryption, audit.

    ``address`` is where real machines and their pods reach it; None where there are none.
    """
    left_out = [] if webhooks else ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]
    own, client, account = (files.pair(name) for name in ("apiserver", "etcd", "service-account"))
    return [
        str(binary),
        f"--etcd-servers=https://{LOOPBACK}:{ports.etcd}",
        f"--etcd-cafile={files.authority}",
        f"--etcd-certfile={client.certificate}",
        f"--etcd-keyfile={client.key}",
        f"--secure-port={ports.api}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        "--tls-min-version=VersionTLS13",
        f"--client-ca-file={files.authority}",
        "--anonymous-auth=false",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={files.certificates / 'service-account.pub'}",
        f"--service-account-signing-key-file={account.key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        *(_among_machines(files, address) if address else _alone()),
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        *([f"--disable-admission-plugins={','.join(left_out)}"] if left_out else []),
        f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
        "--allow-privileged=true",
        f"--encryption-provider-config={files.configuration('encryption.json')}",
        f"--audit-policy-file={files.configuration('audit-policy.json')}",
        f"--audit-log-path={files.audit_log}",
        "--audit-log-maxsize=256",
        "--audit-log-maxbackup=1",
        "--profiling=false",
        "--v=1",
    ]


def _alone() -> list[str]:
    return [
        f"--bind-address={LOOPBACK}",
        # The service `kubernetes` has no endpoints: loopback is not allowed as one.
        "--endpoint-reconciler-type=none",
    ]


def _among_machines(files: Files, address: str) -> list[str]:
    kubelets, proxy = files.pair("kubelet-client"), _pair(files.front_proxy, FRONT_PROXY)
    return [
        "--bind-address=0.0.0.0",  # of a network namespace of its own
        f"--advertise-address={address}",
        # Webhooks by the addresses of their pods: no kube-proxy runs beside it.
        "--enable-aggregator-routing=true",
        f"--kubelet-client-certificate={kubelets.certificate}",
        f"--kubelet-client-key={kubelets.key}",
        f"--kubelet-certificate-authority={files.authority}",
        "--kubelet-preferred-address-types=InternalIP",
        # APIs that pods serve know by this who asks:
        # https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
        f"--requestheader-client-ca-file={_pair(files.front_proxy, 'ca').certificate}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy.certificate}",
        f"--proxy-client-key-file={proxy.key}",
    ]


def scheduler(binary: Path, files: Files, ports: Ports) -> list[str]:
    """The vendor's scheduler with its default profile."""
    return [
        str(binary),
        f"--config={files.configuration('scheduler.json')}",
        *_serving(files, ports.scheduler, "kube-scheduler"),
    ]


def controller_manager(binary: Path, files: Files, ports: Ports) -> list[str]:
    """The default controllers but `UNUSED_CONTROLLERS`, each with its own service account."""
    account, authority = files.pair("service-account"), files.pair("ca")
    return [
        str(binary),
        f"--kubeconfig={files.configuration('kube-controller-manager.kubeconfig')}",
        *_serving(files, ports.controller_manager, "kube-controller-manager"),
        "--leader-elect=false",
        f"--controllers={','.join(['*', *(f'-{each}' for each in UNUSED_CONTROLLERS)])}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={account.key}",
        f"--root-ca-file={files.authority}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--node-monitor-period=2s",
        f"--kube-api-qps={CALLS_PER_SECOND}",
        f"--kube-api-burst={2 * CALLS_PER_SECOND}",
        "--concurrent-job-syncs=20",
        # Quotas on kinds that came after them are in force only once they are counted again.
        "--resource-quota-sync-period=20s",
        "--profiling=false",
    ]


def kwok(binary: Path, files: Files, ports: Ports) -> list[str]:
    """The machines' simulation: it keeps the nodes that carry its annotation."""
    own = files.pair("kwok-server")
    return [
        str(binary),
        f"--kubeconfig={files.configuration('kwok.kubeconfig')}",
        f"--config={files.configuration('kwok.yaml')}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-ip={LOOPBACK}",
        f"--node-port={ports.kwok}",
        f"--server-address={LOOPBACK}:{ports.kwok}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        "--cidr=10.128.0.0/9",
        "--v=WARN",
    ]


def _tls(prefix: str, pair: Pair, files: Files) -> list[str]:
    return [
        f"--{prefix}cert-file={pair.certificate}",
        f"--{prefix}key-file={pair.key}",
        f"--{prefix}trusted-ca-file={files.authority}",
        f"--{prefix}client-cert-auth",
    ]


def _serving(files: Files, port: int, name: str) -> list[str]:
    """Health and metrics on loopback, for who may read them by the API server's word."""
    own, access = files.pair(name), files.configuration(f"{name}.kubeconfig")
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--authentication-kubeconfig={access}",
        f"--authorization-kubeconfig={access}",
    ]


# Processes of one control plane: started together, ended together.
#
# Each is started through `falaj.engine.guard`, so that it ends when the supervisor does, even by
# SIGKILL.

END_SECONDS = 10.0
"""A process that has not ended this long after SIGTERM gets SIGKILL."""
LOG_LINES = 12
_STEP_SECONDS = 0.1


@dataclass
class Supervisor:
    """Runs named commands, their output in `<logs>/<name>.log`."""

    logs: Path
    _running: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start `command`. Raises EngineError when one of that name runs already."""
        if name in self._running:
            raise EngineError(f"{name} runs already as process {self._running[name].pid}")
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                # Asked to end, an API server waits for an etcd that has ended already.
                guarded(list(command), kill=True),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A user's KUBECONFIG or proxy must not take part; Ctrl-C is for the supervisor.
                env={"PATH": os.environ.get("PATH", ""), **GO, **(environment or {})},
                start_new_session=True,
            )

    @property
    def processes(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    def ended(self) -> str | None:
        """Which process ended by itself, with its last words; None when all run."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                return f"{name} ended with exit code {code}:\n{self.last_words(name)}"
        return None

    def last_words(self, name: str) -> str:
        """The end of a process's log."""
        try:
            text = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-LOG_LINES:])

    def stop(self, *names: str) -> None:
        """End these processes, by default all: those started last first."""
        chosen = [name for name in reversed(self._running) if not names or name in names]
        for name in chosen:
            self._end(self._running.pop(name))

    def has_ended(self, name: str) -> bool:
        """Whether a process that was started has ended by itself."""
        return self._running[name].poll() is not None

    def kill(self, *names: str) -> None:
        """End these processes, by default all, at once and without a word, as a power cut does."""
        chosen = [self._running.pop(name) for name in names or tuple(self._running)]
        for process in chosen:
            process.kill()
        for process in chosen:
            process.wait()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


def wait_until(
    ready: Callable[[], bool], supervisor: Supervisor, what: str, seconds: float
) -> None:
    """Wait until calling `ready` is true.

    Raises EngineError: a process ended meanwhile, or it took longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if ended := supervisor.ended():
            raise EngineError(f"{what} did not get ready: {ended}")
        if time.monotonic() > deadline:
            raise EngineError(f"{what} did not get ready within {seconds:.0f} s")
        time.sleep(_STEP_SECONDS)


# Ask the API server whether it is ready, before any client library is loaded.

_QUESTION_SECONDS = 5.0


def answers(port: int, path: str, authority: Path, pair: Pair) -> bool:
    """Whether `https://127.0.0.1:port/path` answers 200 to the client `pair`."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(pair.certificate, pair.key)
    return _is_ok(
        http.client.HTTPSConnection(LOOPBACK, port, timeout=_QUESTION_SECONDS, context=context),
        path,
    )


def answers_plainly(port: int, path: str) -> bool:
    """Whether `http://127.0.0.1:port/path` answers 200: controllers' probes know no TLS."""
    return _is_ok(http.client.HTTPConnection(LOOPBACK, port, timeout=_QUESTION_SECONDS), path)


def listens(port: int) -> bool:
    """Whether somebody takes connections at the loopback port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=_QUESTION_SECONDS).close()
    except OSError:
        return False
    return True


def _is_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
