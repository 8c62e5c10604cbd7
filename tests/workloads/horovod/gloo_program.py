"""A training program that speaks to the launcher exactly as Horovod's processes do.

Horovod itself has no wheels. Requests, their order and their retries are those of its sources:
horovod/common/gloo/{gloo_context,http_store}.cc, gloo/rendezvous/context.cc and the client in
third_party/HTTPRequest, of Horovod 0.28.1. Connections carry a plain all-reduce, not Gloo's.

    python gloo_program.py RESULT [--steps N] [--pause SECONDS] [--fail RANK:STEP:STATUS]
                           [--linger SECONDS] [--checkpoint FILE] [--rounds N] [--child FILE]
                           [--until FILE]
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

WANTED = 3.0  # the weight that is learnt


def request(method: str, scope: str, key: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request on a connection of its own, over IPv4; three tries, then the end."""
    host = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    head = (
        f"{method} /{scope}/{key} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(3):
        try:
            with socket.socket(socket.AF_INET) as connection:
                connection.connect((host, port))
                connection.sendall(head.encode() + body)
                answer = b""
                while part := connection.recv(4096):
                    answer += part
            top, _, content = answer.partition(b"\r\n\r\n")
            status = int(top.split()[1])
            if status in (200, 404):
                return status, content
        except OSError:
            time.sleep(0.5)
    raise SystemExit("HTTP request failed.")


class Ring:
    """The processes of a scope, each connected with each other."""

    def __init__(self, scope: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        request("PUT", scope, f"rank_{rank}", socket.gethostname().encode())
        for lower in range(rank):
            request("GET", scope, f"rank_{lower}")
        listening = socket.create_server((address_of(os.environ["HOROVOD_GLOO_IFACE"]), 0))
        request("PUT", scope, str(rank), json.dumps(listening.getsockname()).encode())
        self.peers: dict[int, socket.socket] = {}
        for other in range(size):
            if other == rank:
                continue
            until = time.monotonic() + float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
            while (found := request("GET", scope, str(other)))[0] == 404:
                assert time.monotonic() < until, f"nobody said {scope}/{other}"
                time.sleep(0.01)
            if other < rank:
                peer = socket.create_connection(tuple(json.loads(found[1])))
                peer.sendall(struct.pack("!i", rank))
                self.peers[other] = peer
            else:
                peer, _ = listening.accept()
                self.peers[struct.unpack("!i", peer.recv(4))[0]] = peer
        listening.close()
        self.sum(0.0)  # a barrier
        request("DELETE", scope, str(rank))

    def sum(self, value: float) -> float:
        for peer in self.peers.values():
            peer.sendall(struct.pack("!d", value))
        for peer in self.peers.values():
            data = b""
            while len(data) < 8:
                part = peer.recv(8 - len(data))
                if not part:
                    raise ConnectionError("a peer has gone")
                data += part
            value += struct.unpack("!d", data)[0]
        return value

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface: netdevice(7), SIOCGIFADDR."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asked = struct.pack("256s", interface.encode())
        return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), 0x8915, asked)[20:24])


def number(name: str) -> int:
    return int(os.environ[f"HOROVOD_{name}"])


def initialise() -> Ring:
    assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
    ring = Ring("global", number("RANK"), number("SIZE"))
    host = os.environ["HOROVOD_HOSTNAME"]
    local = Ring(f"local_{host}", number("LOCAL_RANK"), number("LOCAL_SIZE"))
    cross = Ring(f"cross_{number('LOCAL_RANK')}", number("CROSS_RANK"), number("CROSS_SIZE"))
    assert local.size * cross.size == ring.size
    local.close()
    cross.close()
    return ring


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--fail", default="-1:0:0")
    parser.add_argument("--linger", type=float, default=0.0, help="from the failure to the end")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--until", type=Path, help="goes on learning until the file is there")
    options = parser.parse_args()
    asked: list[int] = []
    if options.checkpoint:
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    if options.child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        options.child.with_suffix(f".{os.getpid()}").write_text(str(child.pid))
    for _ in range(options.rounds):  # Horovod may be ended and begun anew in one process
        ring = initialise()
        code = train(ring, options, asked)
        ring.close()
        if code:
            time.sleep(options.linger)
            return code
    return 0


def train(ring: Ring, options: argparse.Namespace, asked: list[int]) -> int:
    rank, at, status = (int(each) for each in options.fail.split(":"))
    weight = 0.0
    for step in itertools.count():
        # All see the file in the same step, or some would go and leave the others waiting.
        waiting = options.until is not None and not options.until.exists()
        if ring.sum(float(step < options.steps or waiting)) == 0:
            break
        if rank == ring.rank and step == at:
            if status < 0:
                os.kill(os.getpid(), -status)
            return status
        gradient = 2 * (ring.rank + 1) * (weight - WANTED)
        total = sum(range(1, ring.size + 1))
        weight -= 0.2 * ring.sum(gradient) / total
        if ring.sum(float(len(asked))) > 0:
            if ring.rank == 0:
                time.sleep(2 * options.pause)
                options.checkpoint.write_text(json.dumps({"step": step, "weight": weight}))
            return 75
        if options.pause:
            print(f"step {step}", flush=True)
            time.sleep(options.pause)
    result = {"weight": weight, "rank": ring.rank, "size": ring.size, "cwd": sys.path[0]}
    options.result.with_suffix(f".{ring.rank}").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
