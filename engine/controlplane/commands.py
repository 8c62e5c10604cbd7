"""Command lines of the control plane's processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from falaj.engine.controlplane.certificates import Pair
from falaj.engine.controlplane.configuration import CALLS_PER_SECOND

LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
"""The address of the service `kubernetes`: the first of the range."""

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

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{LOOPBACK}:{self.api}"


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
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line."""
        return self.logs / "audit.log"

    def configuration(self, name: str) -> Path:
        """A component's configuration file."""
        return self.folder / "configuration" / name

    def pair(self, name: str) -> Pair:
        """A certificate and its key."""
        return Pair(self.certificates / f"{name}.crt", self.certificates / f"{name}.key")

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.certificates / "ca.crt"


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


def api_server(binary: Path, files: Files, ports: Ports, *, webhooks: bool) -> list[str]:
    """RBAC and Node authorisation, certificates and service account tokens, encryption, audit."""
    left_out = [] if webhooks else ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]
    own, client, account = (files.pair(name) for name in ("apiserver", "etcd", "service-account"))
    return [
        str(binary),
        f"--etcd-servers=https://{LOOPBACK}:{ports.etcd}",
        f"--etcd-cafile={files.authority}",
        f"--etcd-certfile={client.certificate}",
        f"--etcd-keyfile={client.key}",
        f"--bind-address={LOOPBACK}",
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
        # The service `kubernetes` has no endpoints: loopback is not allowed as one.
        "--endpoint-reconciler-type=none",
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


def scheduler(binary: Path, files: Files, ports: Ports) -> list[str]:
    """The vendor's scheduler with its default profile."""
    return [
        str(binary),
        f"--config={files.configuration('scheduler.json')}",
        *_serving(files, ports.scheduler, "kube-scheduler"),
    ]


def controller_manager(binary: Path, files: Files, ports: Ports) -> list[str]:
    """All default controllers, each with its own service account."""
    account, authority = files.pair("service-account"), files.pair("ca")
    return [
        str(binary),
        f"--kubeconfig={files.configuration('kube-controller-manager.kubeconfig')}",
        *_serving(files, ports.controller_manager, "kube-controller-manager"),
        "--leader-elect=false",
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
