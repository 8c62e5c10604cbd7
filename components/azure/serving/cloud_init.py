"""What a machine of the inference tier does when it starts: its cloud-init configuration."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falaj.components.specification import sent_programs
from falaj.components.specification.workload_bounds import fixed

#: Where the machine keeps the programs and the unpacked image.
_PROGRAMS = "/opt/falaj"
_IMAGE = "/var/lib/falaj/image"
#: Where the package lies: in memory on machines; sealed, on a replica's own disk in containers.
FOLDER = "/run/falaj"
#: Where keys lie, by the tier's mode: in memory, always.
SECRETS = {"instances": "/run/falaj/secrets", "serverless": "/dev/shm/falaj"}  # noqa: S108
#: Whom the server runs as: nobody that the machine knows.
_USER = fixed("image", "user")
#: Azure's limit for custom data, before it is encoded:
#: https://learn.microsoft.com/azure/virtual-machines/custom-data
_LIMIT_BYTES = 65_535


def program(name: str) -> str:
    """Text of one of this folder's programs."""
    return sent_programs.program(Path(__file__).parent / name)


def custom_data(image: str, client: str, settings: Mapping[str, Any]) -> str:
    """The cloud-init configuration in base64; it holds no secrets.

    Args:
        image: the inference image, by digest.
        client: client id of the machine's identity.
        settings: what `start_server.py` reads.

    Raises:
        ValueError: it is longer than Azure takes.
    """
    files = {
        f"{_PROGRAMS}/pull_image.py": program("pull_image.py"),
        f"{_PROGRAMS}/start_server.py": program("start_server.py"),
        f"{_PROGRAMS}/serving.env": f"FALAJ_SERVING='{json.dumps(dict(settings))}'\n",
        "/etc/systemd/system/falaj-image.service": _image_unit(image, client),
        "/etc/systemd/system/falaj-inference.service": _server_unit(),
    }
    configuration = {
        "ssh_pwauth": False,
        "disable_root": True,
        "write_files": [
            {"path": path, "content": text, "permissions": "0644"} for path, text in files.items()
        ],
        "runcmd": [
            # Nobody logs in: a machine that misbehaves is replaced.
            ["systemctl", "mask", "--now", "ssh.socket", "ssh.service"],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "falaj-inference.service"],
        ],
    }
    text = f"#cloud-config\n{json.dumps(configuration)}\n".encode()
    if len(text) > _LIMIT_BYTES:
        raise ValueError(
            f"the machine's configuration has {len(text)} bytes; allowed: {_LIMIT_BYTES}"
        )
    return base64.b64encode(text).decode()


def keyless_login() -> str:
    """A public key for the login that Azure demands, whose private key nobody has.

    Azure makes no Linux machine without a password or a key. These 32 bytes are a hash of a
    sentence, not derived from a private key.
    """
    kind, point = b"ssh-ed25519", hashlib.sha256(b"nobody logs in to this machine").digest()
    wire = b"".join(struct.pack(">I", len(part)) + part for part in (kind, point))
    return f"{kind.decode()} {base64.b64encode(wire).decode()} nobody"


def _image_unit(image: str, client: str) -> str:
    return f"""\
[Unit]
Description=Image of the inference server
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 {_PROGRAMS}/pull_image.py {image} {_IMAGE} {client}
Restart=on-failure
RestartSec=15
"""


def _server_unit() -> str:
    return f"""\
[Unit]
Description=Inference server
Requires=falaj-image.service
After=falaj-image.service
StartLimitIntervalSec=0

[Service]
RootDirectory={_IMAGE}/root
MountAPIVFS=yes
EnvironmentFile={_IMAGE}/environment
EnvironmentFile={_PROGRAMS}/serving.env
BindReadOnlyPaths={_PROGRAMS}/start_server.py
BindReadOnlyPaths=/run/systemd/resolve/resolv.conf:/etc/resolv.conf /etc/hosts
TemporaryFileSystem={FOLDER}:mode=0700,uid={_USER},gid={_USER},size=50%
ExecStart=/usr/bin/env python {_PROGRAMS}/start_server.py
Restart=always
RestartSec=5
TimeoutStopSec=60
User={_USER}
Group={_USER}
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""
