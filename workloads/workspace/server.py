"""JupyterLab as it is run in a workspace.

It listens on the loopback interface alone: nobody in the cluster's network reaches it, only who
may forward a port of its pod (https://kubernetes.io/docs/reference/kubectl/generated/
kubectl_port-forward/). The token comes from a file, so that neither the command line nor the
environment of kernels has it, and the server's own notes about itself, which hold it, are in a
folder that goes with the process. No configuration is read but what stands here: files in the
person's home don't change the server.

Settings: https://jupyter-server.readthedocs.io/en/latest/other/full-config.html and
https://jupyterlab.readthedocs.io/en/stable/getting_started/announcements.html. The pinned packages
were read for what these pages leave out.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.workspace.idleness import Limits, end_reason

ADDRESS = "127.0.0.1"
LEAST_TOKEN = 32
"""Characters of a token: fewer could be guessed."""
#: Seconds between two looks at what is used.
_MOST_BETWEEN = 30.0
_EXTENSIONS = {
    "jupyterlab": True,
    "jupyter_server_terminals": True,
    # Language servers would be programs of their own, which nobody installed.
    "jupyter_lsp": False,
}


@dataclass(frozen=True)
class Settings:
    """What one server is told."""

    home: Path
    runtime: Path
    """Folder in memory for the server's own notes, which go with it."""
    host_name: str
    """The name that the certificate has, beside loopback's own."""
    port: int
    certificate: Path
    private_key: Path
    token_file: Path
    limits: Limits


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        WorkloadError: there is none that can be used. The message never has the token.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise WorkloadError(f"--token-file: {path} cannot be read: {reason}") from None
    if len(token) < LEAST_TOKEN or not (token.isascii() and token.isalnum()):
        raise WorkloadError(
            f"--token-file: {path} has {len(token)} characters; allowed: {LEAST_TOKEN} or more "
            "letters and digits; make one with: openssl rand -hex 32"
        )
    return token


def tls_context(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """What connections are made by: TLS 1.3 alone.

    Raises:
        WorkloadError: certificate or key can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise WorkloadError(
            f"--certificate {certificate} and --private-key {private_key} cannot be used: {error}"
        ) from None
    return context


def serve(settings: Settings) -> int:
    """Serve until the person ends it, nobody uses it, or its time is over.

    Raises:
        WorkloadError: it can't be started as it was told.
    """
    token = read_token(settings.token_file)
    context = tls_context(settings.certificate, settings.private_key)
    for option, folder in (("--home", settings.home), ("--runtime", settings.runtime)):
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise WorkloadError(f"{option}: given {folder}; allowed: a folder to write to")
    with tempfile.TemporaryDirectory(prefix="workspace-", dir=settings.runtime) as own:
        # Read by jupyter_core where it is imported first.
        os.environ["JUPYTER_RUNTIME_DIR"] = f"{own}/runtime"
        os.environ["JUPYTER_CONFIG_DIR"] = f"{own}/configuration"
        _run(settings, token, context)
    return 0


def _run(settings: Settings, token: str, context: ssl.SSLContext) -> None:
    # Imported here: its import takes seconds, and looks at the environment.
    from falaj.workloads.workspace.jupyter import WorkspaceServer  # noqa: PLC0415

    app = WorkspaceServer.instance(config=configuration(settings, token))
    app.context = context
    app.initialize(argv=[], find_extensions=False)
    watch(app, settings.limits)
    app.start()


def configuration(settings: Settings, token: str) -> Any:
    """All settings of Jupyter's that aren't its defaults."""
    from traitlets.config import Config  # noqa: PLC0415

    kept = settings.home / ".jupyter" / "lab"
    return Config(
        {
            "ServerApp": {
                "ip": ADDRESS,
                "port": settings.port,
                "port_retries": 0,
                "open_browser": False,
                # The pod's specification refuses root, and the cluster whatever doesn't say so.
                "allow_root": True,
                "root_dir": str(settings.home),
                "default_url": "/lab",
                "certfile": str(settings.certificate),
                "keyfile": str(settings.private_key),
                # Names in a request's Host that aren't these are refused: no page of another host
                # gets in by having its name resolve to loopback.
                "allow_remote_access": False,
                "local_hostnames": ["localhost", settings.host_name],
                "cookie_secret": os.urandom(32),
                "jpserver_extensions": _EXTENSIONS,
                # Its own words for how to get in would name the token.
                "log_level": "WARN",
                "terminado_settings": {"shell_command": [_shell()]},
            },
            "IdentityProvider": {
                "token": token,
                "secure_cookie": True,
                "cookie_options": {"samesite": "Strict"},
            },
            "PasswordIdentityProvider": {
                "token": token,
                "hashed_password": "",
                "allow_password_change": False,
                "secure_cookie": True,
                "cookie_options": {"samesite": "Strict"},
            },
            "TerminalsExtensionApp": {
                "terminal_manager_class": "falaj.workloads.workspace.jupyter.InputTerminals",
            },
            "LabApp": {
                "app_dir": str(_application_folder()),
                "user_settings_dir": str(kept / "user-settings"),
                "workspaces_dir": str(kept / "workspaces"),
                # Nothing is asked of servers of others, which network policies refuse as well.
                "extension_manager": "readonly",
                "news_url": None,
                "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            },
        }
    )


def _shell() -> str:
    return next((each for each in ("/bin/bash", "/bin/sh") if Path(each).exists()), "/bin/sh")


def _application_folder() -> Path:
    """Where JupyterLab's pages are: below the interpreter's prefix, or beside its package.

    ``pip install --target`` puts what belongs below the prefix into the folder of the packages.
    """
    import jupyterlab  # noqa: PLC0415

    beside = Path(str(jupyterlab.__file__)).parents[1] / "share" / "jupyter" / "lab"
    return beside if beside.is_dir() else Path(sys.prefix) / "share" / "jupyter" / "lab"


def watch(app: Any, limits: Limits) -> None:
    """End a server when it is to end; it looks a few times in each limit."""
    from tornado.ioloop import PeriodicCallback  # noqa: PLC0415

    started = datetime.now(UTC)
    ending = False

    def look() -> None:
        nonlocal ending
        reason = end_reason(
            limits, started, datetime.now(UTC), app.kernels_used(), app.other_uses()
        )
        if reason and not ending:
            ending = True
            print(f"the workspace ends: {reason}", flush=True)
            app.stop()

    every = min(_MOST_BETWEEN, limits.idle_seconds / 4, limits.most_seconds / 4)
    callback: Callable[[], None] = look
    PeriodicCallback(callback, every * 1000).start()
