"""A real CoreDNS on the loopback, questions as bytes, and a server behind it that keeps them."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falaj.engine.controlplane import binaries
from tests.ports import free_port

START_SECONDS = 60
TYPES = {"A": 1, "NS": 2, "NULL": 10, "PTR": 12, "TXT": 16, "AAAA": 28, "SRV": 33, "DS": 43,
         "HTTPS": 65, "ANY": 255}  # fmt: skip
NOERROR, NXDOMAIN = 0, 3

#: What a cluster by kubeadm has, and EKS but for the last directives of `kubernetes`:
#: https://kubernetes.io/docs/tasks/administer-cluster/dns-custom-nameservers/#coredns
VENDOR = """\
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
"""
#: What AKS has: https://github.com/coredns/coredns/issues/7090 shows it as a cluster had it.
AKS = (
    VENDOR.removesuffix("}\n")
    + r"""    import custom/*.override
    template ANY ANY internal.cloudapp.net {
        match "^(?:[^.]+\.){4,}internal\.cloudapp\.net\.$"
        rcode NXDOMAIN
        fallthrough
    }
    template ANY ANY reddog.microsoft.com {
        rcode NXDOMAIN
    }
}
import custom/*.server
"""
)


def labels(name: str) -> list[bytes]:
    """A name as its labels."""
    return [part.encode() for part in name.rstrip(".").split(".") if part]


def question(name: Sequence[bytes], kind: int, *, class_: int = 1, edns: bool = False) -> bytes:
    """A question as it is sent: RFC 1035, section 4; with RFC 6891's record if asked for."""
    header = struct.pack("!HHHHHH", 0x4D2, 0x0100, 1, 0, 0, int(edns))
    wire = b"".join(bytes([len(each)]) + each for each in name) + b"\0"
    more = struct.pack("!BHHIH", 0, 41, 1232, 0, 0) if edns else b""
    return header + wire + struct.pack("!HH", kind, class_) + more


def asked(message: bytes) -> tuple[bytes, ...]:
    """The labels of a message's first question."""
    found: list[bytes] = []
    at = 12
    while length := message[at]:
        found.append(message[at + 1 : at + 1 + length])
        at += 1 + length
    return tuple(found)


def ask(
    port: int,
    name: str | Sequence[bytes],
    kind: str = "A",
    *,
    tcp: bool = False,
    class_: int = 1,
    edns: bool = False,
) -> tuple[int, int]:
    """The code and the number of records of the answer to a question."""
    sent = question(
        labels(name) if isinstance(name, str) else name, TYPES[kind], class_=class_, edns=edns
    )
    where = ("127.0.0.1", port)
    if tcp:
        with socket.create_connection(where, timeout=20) as stream, stream.makefile("rb") as read:
            stream.sendall(struct.pack("!H", len(sent)) + sent)
            answer = read.read(struct.unpack("!H", read.read(2))[0])
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.settimeout(20)
            datagrams.sendto(sent, where)
            answer = datagrams.recv(4096)
    _, flags, _, answers, _, _ = struct.unpack("!HHHHHH", answer[:12])
    return flags & 0xF, answers


@dataclass
class Upstream:
    """The network's resolver: has an address for every name, and keeps what it was asked."""

    port: int
    asked: list[tuple[bytes, ...]] = field(default_factory=list[tuple[bytes, ...]])

    def heard(self, name: str | Sequence[bytes]) -> bool:
        """Whether it was asked for a name, in letters of any size."""
        wanted = [each.lower() for each in (labels(name) if isinstance(name, str) else name)]
        return wanted in [[each.lower() for each in one] for one in self.asked]

    def reply(self, message: bytes) -> bytes:
        """An address for who asks for one; nothing of any other type."""
        self.asked.append(asked(message))
        end = 12 + sum(len(each) + 1 for each in self.asked[-1]) + 5
        kind = struct.unpack("!H", message[end - 4 : end - 2])[0]
        record = b"\xc0\x0c" + struct.pack("!HHIH4B", 1, 1, 60, 4, 192, 0, 2, 1)
        answer = record if kind == TYPES["A"] else b""
        head = message[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answer)), 0, 0)
        return head + message[12:end] + answer


@contextmanager
def upstream() -> Generator[Upstream]:
    """Such a resolver, by datagrams and by streams."""
    port = free_port()
    found = Upstream(port)

    class Datagram(socketserver.DatagramRequestHandler):
        def handle(self) -> None:
            self.wfile.write(found.reply(self.rfile.read()))

    class Stream(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(2):
                answer = found.reply(self.rfile.read(struct.unpack("!H", head)[0]))
                self.wfile.write(struct.pack("!H", len(answer)) + answer)

    class Streams(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with (
        socketserver.ThreadingUDPServer(("127.0.0.1", port), Datagram) as udp,
        Streams(("127.0.0.1", port), Stream) as tcp,
    ):
        servers: list[socketserver.BaseServer] = [udp, tcp]
        for server in servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        for server in servers:
            server.shutdown()


@dataclass
class Resolver:
    """A CoreDNS that runs."""

    port: int
    metrics: int
    upstream: Upstream
    log: Path

    def counted(self, metric: str, **with_labels: str) -> float:
        """The sum of a metric's values of these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as answer:
            text = answer.read().decode()
        wanted = [f'{key}="{value}"' for key, value in with_labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(f"{metric}{{") and all(each in line for each in wanted)
        )


@contextmanager
def resolver(
    folder: Path,
    corefile: str,
    custom: Mapping[str, str] | None = None,
    *,
    kubeconfig: Path | None = None,
) -> Generator[Resolver]:
    """A CoreDNS with a configuration; ``custom`` are the data of ``coredns-custom``.

    Only what names a place is changed: ports, the resolvers behind it, and the API server.
    """
    with ExitStack() as stack:
        behind = stack.enter_context(upstream())
        found = Resolver(free_port(), free_port(), behind, folder / "log")
        (folder / "custom").mkdir(parents=True)
        files = {f"custom/{name}": text for name, text in (custom or {}).items()}
        for name, text in {"Corefile": corefile, **files}.items():
            (folder / name).write_text(_on_loopback(text, found, kubeconfig), encoding="utf-8")
        command = Path(binaries.ensure(["coredns"])["coredns"]) / "coredns"
        with found.log.open("wb") as log:
            process = subprocess.Popen(
                [command, "-conf", "Corefile"], cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "GOMAXPROCS": "2"},
            )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        _wait(process, found)
        yield found


def _on_loopback(text: str, found: Resolver, kubeconfig: Path | None) -> str:
    api = f"kubeconfig {kubeconfig}" if kubeconfig else "endpoint http://127.0.0.1:9"
    waits = f"{START_SECONDS}s" if kubeconfig else "100ms"
    changes = (
        (r"(?m)^(\S.*:53\b.*\{)$", r"\1" + "\n    bind 127.0.0.1"),
        (r":53\b", f":{found.port}"),
        (r"/etc/resolv\.conf", f"127.0.0.1:{found.upstream.port}"),
        (r"prometheus :9153", f"prometheus 127.0.0.1:{found.metrics}"),
        (r"health \{", f"health 127.0.0.1:{free_port()} {{"),
        (r"(?m)^    ready$", f"    ready 127.0.0.1:{free_port()}"),
        (r"(kubernetes .*\{)", rf"\1 \n        {api}\n        startup_timeout {waits}"),
    )
    for pattern, instead in changes:
        text = re.sub(pattern, instead, text)
    return text


def _wait(process: subprocess.Popen[Any], found: Resolver) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        said = found.log.read_text("utf-8", "replace")
        assert process.poll() is None, said
        if "CoreDNS-" in said:
            return
        time.sleep(0.05)
    raise AssertionError(found.log.read_text("utf-8", "replace"))
