"""What a machine of the inference tier does when it starts: its cloud-init configuration."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.components.specification import sent_programs
from falaj.components.specification.workload_bounds import fixed

#: Port of the server on machines and in containers; a server without privileges can take it.
PORT = fixed("image", "server_port")
_PROGRAMS = "/opt/falaj"
_SETTINGS = f"{_PROGRAMS}/serving.json"
FOLDER = "/var/lib/falaj"
#: In memory, on machines; keys never reach a disk.
SECRETS = "/run/falaj/secrets"
#: Of the secrets: Docker's configuration with a login to the registry, gone once it was used.
_LOGIN = "login"
_AGENT = "amazon-ssm-agent.service"
#: Whom the server runs as: nobody that the machine knows.
_USER = fixed("image", "user")
#: docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html: 16 KB before base64.
_LIMIT_BYTES = 16_384


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What is served, and where what it needs lies."""

    region: str
    repository: str
    """Of the model's packages: host and name."""
    package_digest: str
    keys_digest: str
    model: str
    version: int
    keyring: str
    """ARN of the secret."""
    host_name: str
    workers: int

    def settings(self, *, secrets: str, user: int | None) -> dict[str, Any]:
        """What `fetch.py` and `start_server.py` read; no secrets."""
        return {
            "region": self.region,
            "repository": self.repository,
            "package_digest": self.package_digest,
            "keys_digest": self.keys_digest,
            "model": self.model,
            "version": self.version,
            "keyring": self.keyring,
            "host_name": self.host_name,
            "workers": self.workers,
            "port": PORT,
            "folder": FOLDER,
            "secrets": secrets,
            "login": f"{secrets}/{_LOGIN}",
            "user": user,
        }


def program(name: str) -> str:
    """Text of one of this folder's programs."""
    return sent_programs.program(Path(__file__).parent / name)


def user_data(image: str, log_group: str, serving: Serving, *, sessions: bool = False) -> str:
    """The cloud-init configuration, compressed and in base64; it holds no secrets.

    Args:
        image: the inference image, by digest.
        log_group: name of the group that the server's log goes to, and what a start that failed
            left in the machine's journal.
        serving: what is served.
        sessions: whether the agent of Session Manager runs.

    Raises:
        ValueError: it is longer than EC2 takes.
    """
    text = configuration(image, log_group, serving, sessions=sessions)
    packed = gzip.compress(text.encode(), mtime=0)
    if len(packed) > _LIMIT_BYTES:
        raise ValueError(f"the user data has {len(packed)} bytes; allowed: {_LIMIT_BYTES}")
    return base64.b64encode(packed).decode()


def configuration(image: str, log_group: str, serving: Serving, *, sessions: bool = False) -> str:
    """The cloud-init configuration as text."""
    # Nobody logs in unless that was asked for, and no cluster owns it: a machine that misbehaves
    # is replaced.
    unwanted = ["sshd.service", "ecs.service", *(() if sessions else (_AGENT,))]
    settings = serving.settings(secrets=SECRETS, user=_USER)
    files: Mapping[str, str] = {
        f"{_PROGRAMS}/fetch.py": program("fetch.py"),
        f"{_PROGRAMS}/tell.py": program("tell.py"),
        f"{_PROGRAMS}/start_server.py": program("start_server.py"),
        _SETTINGS: json.dumps({**settings, "log_group": log_group}),
        # A variable's value may hold no line break; JSON on one line has none.
        f"{_PROGRAMS}/serving.env": f"FALAJ_SERVING={json.dumps(settings)}\n",
        "/etc/systemd/system/falaj-inference.service": unit(image, log_group, serving.region),
    }
    document = {
        "ssh_pwauth": False,
        "disable_root": True,
        "write_files": [
            {"path": path, "content": text, "permissions": "0644"} for path, text in files.items()
        ],
        "runcmd": [
            ["systemctl", "mask", "--now", *unwanted],
            *([["systemctl", "enable", "--now", "--no-block", _AGENT]] if sessions else ()),
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "--no-block", "falaj-inference.service"],
        ],
    }
    return f"#cloud-config\n{json.dumps(document)}\n"


def unit(image: str, log_group: str, region: str) -> str:
    """The systemd unit: fetch, pull by digest, run without privileges, begin again on failure."""
    options = " ".join(
        (
            "--rm --name falaj-inference --read-only --cap-drop ALL",
            f"--security-opt no-new-privileges --pids-limit 512 --user {_USER}:{_USER}",
            f"--env-file {_PROGRAMS}/serving.env --publish {PORT}:{PORT}",
            "--tmpfs /tmp:rw,noexec,nosuid,nodev,size=64m",
            f"--volume {FOLDER}:{FOLDER} --volume {SECRETS}:{SECRETS}",
            f"--volume {_PROGRAMS}/start_server.py:{_PROGRAMS}/start_server.py:ro",
            f"--log-driver awslogs --log-opt awslogs-region={region}",
            f"--log-opt awslogs-group={log_group} --log-opt mode=non-blocking",
        )
    )
    return f"""\
[Unit]
Description=Inference server
Requires=docker.service
Wants=network-online.target
After=docker.service network-online.target
StartLimitIntervalSec=0

[Service]
Environment=DOCKER_CONFIG={SECRETS}/{_LOGIN}
ExecStartPre=/usr/bin/python3 {_PROGRAMS}/fetch.py {_SETTINGS}
ExecStartPre=/usr/bin/docker pull --quiet {image}
ExecStartPre=-/usr/bin/docker rm --force falaj-inference
ExecStart=/usr/bin/docker run {options} --entrypoint python {image} {_PROGRAMS}/start_server.py
ExecStop=/usr/bin/docker stop --time 30 falaj-inference
ExecStopPost=-/usr/bin/python3 {_PROGRAMS}/tell.py {_SETTINGS}
Restart=always
RestartSec=10
TimeoutStartSec=900
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
"""
