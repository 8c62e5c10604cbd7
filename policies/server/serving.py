"""Runs a pack: `PulumiPolicy.yaml`'s program is a call of `serve`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any, Final

import grpc
import yaml

from falaj.policies.model import PolicyError
from falaj.policies.rules import PACKS, all_rules, rules_of
from falaj.policies.server.analyzer import Analyzer, Pack
from falaj.wire.protocol import MESSAGE_OPTIONS, analyzer_pb2_grpc

#: Seconds between looks whether the engine is still there.
_LOOK_FOR_PARENT: Final = 5


def load_pack(folder: Path) -> Pack:
    """The pack in a folder: ``policies/residency`` and the like, or ``policies/all``."""
    described: dict[str, Any] = yaml.safe_load(
        (folder / "PulumiPolicy.yaml").read_text(encoding="utf-8")
    )
    name = folder.name
    readme = folder / "README.md"
    return Pack(
        name=f"falaj-{name.replace('_', '-')}",
        version=str(described["version"]),
        rules=rules_of(name) if name in PACKS else all_rules(),
        packs=(name,) if name in PACKS else PACKS,
        folder=folder,
        readme=readme.read_text(encoding="utf-8") if readme.exists() else "",
    )


def serve(folder: Path) -> None:
    """Answer the engine until it ends this process."""
    # Read before anything else: an engine that is killed while this starts must be noticed too.
    parent = os.getppid()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _signal, _frame: ended.set())
    # One thread: rules are computation alone, which threads of Python don't speed up.
    try:
        pack = load_pack(folder)
    except PolicyError as error:
        # The engine shows what a pack says that doesn't start.
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=MESSAGE_OPTIONS)
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(pack), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # The engine reads the port from the first line.
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not ended.wait(_LOOK_FOR_PARENT):
        if os.getppid() != parent:
            # An engine that was killed tells nobody.
            break
    server.stop(grace=None)
