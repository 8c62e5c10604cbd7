"""Turns the sandbox on for one run of the engine, and keeps it apart from everything real.

The sandbox's providers are installed in a Pulumi home of their own, under the versions that the
SDKs ask for: the engine finds them there without a download, and nothing of them is on the PATH
or in the project's files, where a real deployment could pick them up. State, passphrase and the
made-up cloud are the sandbox's own as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from falaj.components.catalogue.propagation import VARIABLE as PROPAGATION_VARIABLE
from falaj.engine.backend import ensure_passphrase
from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.extras import OF_PROVIDERS
from falaj.engine.files import cache_home, data_home, make_private
from falaj.engine.launchers import PYTHON_VARIABLE, write_script
from falaj.sandbox import sdks
from falaj.sandbox.sdks import SDKS, UTILITIES

ACTIVE_VARIABLE: Final = "FALAJ_SANDBOX"
"""``1`` where the sandbox is on."""
CLOUD_VARIABLE: Final = "FALAJ_SANDBOX_CLOUD"
"""The file that holds the sandbox's cloud."""
PREDICTION_VARIABLE: Final = "FALAJ_SANDBOX_PREDICT"
"""The file of the copy; the processes of one preview share it."""
CLUSTER_VARIABLE: Final = "FALAJ_SANDBOX_CLUSTER"
"""The kubeconfig of the test control plane, which then takes Kubernetes objects in earnest;
without it they are made up like everything else."""

CREDENTIALS: Final = (
    "AWS_", "ARM_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "KUBECONFIG", "KUBE_", "PULUMI_K8S_",
)  # fmt: skip
"""Beginnings of the variables by which real providers and clouds' SDKs find accounts and clusters;
Google's for programs of others
(https://www.pulumi.com/registry/packages/gcp/installation-configuration/)."""

_ALSO_REMOVED: Final = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_DEBUG_PROVIDERS")

_SCRIPT: Final = f"""#!/bin/sh
# Starts Falaj's sandbox in place of the vendor's provider (see sandbox/).
if [ "${ACTIVE_VARIABLE}" != 1 ] || [ -z "${PYTHON_VARIABLE}" ]; then
    echo "error: this provider makes nothing real; it runs in Falaj's sandbox only" >&2
    exit 1
fi
exec "${PYTHON_VARIABLE}" -P -m falaj.sandbox.serving {{package}} "$@"
"""


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that turn the sandbox on, to be set beside those of `base` (ours).

    Makes what they name on first use. Take away those of `removals` as well, or use `activated`.

    Raises:
        EngineError: a backend or an account of Pulumi Cloud was chosen, which would mix made-up
            and real state; a provider on the PATH would be taken instead; no SDK is installed.
    """
    given = os.environ if base is None else base
    home = _home(given)
    own = (home / "backend").as_uri()
    _refuse_own_backend(given, own)
    _refuse_foreign_providers(given)
    try:
        make_private(home.parent)
        make_private(home)
        make_private(home / "backend")
        passphrase = ensure_passphrase(home / "passphrase")
        pulumi_home = _install(given)
    except OSError as error:
        raise explain_os_error(error, f"preparing the sandbox in {home}") from error
    return {
        ACTIVE_VARIABLE: "1",
        CLOUD_VARIABLE: str(cloud_file(given)),
        # What is granted here holds at once.
        PROPAGATION_VARIABLE: "0",
        PYTHON_VARIABLE: sys.executable,
        "PULUMI_BACKEND_URL": own,
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        "PULUMI_HOME": str(pulumi_home),
        # Never a vendor's provider instead of one that is missing here.
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def removals(base: Mapping[str, str] | None = None) -> list[str]:
    """The variables of `base` (ours) that must not reach the sandbox: credentials above all."""
    given = os.environ if base is None else base
    return sorted(name for name in given if name.startswith(CREDENTIALS) or name in _ALSO_REMOVED)


def activated(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables for a run in the sandbox. Raises EngineError as `environment` does."""
    given = os.environ if base is None else base
    removed = removals(given)
    kept = {name: value for name, value in given.items() if name not in removed}
    return {**kept, **environment(given)}


def left(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `base` (ours) without those that a shell of Falaj's was given.

    For what makes a sandbox of its own while it is called in another one's shell, or in that of a
    stack with Falaj's own backend; a backend of somebody's choosing stays, and is refused.
    """
    given = dict(os.environ if base is None else base)
    own = (data_home(given) / "backend").as_uri()
    if is_asked(given):
        for name in (ACTIVE_VARIABLE, CLOUD_VARIABLE, PROPAGATION_VARIABLE, sdks.VARIABLE):
            given.pop(name, None)
    elif given.get("PULUMI_BACKEND_URL") != own:
        return given
    for name in ("PULUMI_BACKEND_URL", "PULUMI_HOME", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        given.pop(name, None)
    return given


def cloud_file(environ: Mapping[str, str] | None = None) -> Path:
    """The file that holds what exists in the sandbox."""
    given = os.environ if environ is None else environ
    return Path(given.get(CLOUD_VARIABLE) or _home(given) / "cloud.sqlite")


def is_asked(environ: Mapping[str, str] | None = None) -> bool:
    """Whether variables say that this run is one in the sandbox; `check` says if it really is."""
    given = os.environ if environ is None else environ
    return given.get(ACTIVE_VARIABLE, "") not in ("", "0")


def check(environ: Mapping[str, str] | None = None) -> None:
    """Refuse an environment that is half the sandbox's and half real.

    Raises:
        EngineError: the sandbox is asked for but something real would be used, or the other way
            round; the text says which variable is to blame.
    """
    given = os.environ if environ is None else environ
    if is_asked(given):
        require_active(given)
        _refuse_foreign_providers(given)
        return
    if _is_inside(given.get("PULUMI_BACKEND_URL", ""), _home(given)):
        raise _half("PULUMI_BACKEND_URL names the sandbox's state")
    if _is_inside(given.get("PULUMI_HOME", ""), _pulumi_home(given)):
        raise _half("PULUMI_HOME names the sandbox's providers")


def require_active(environ: Mapping[str, str]) -> None:
    """Refuse to go on unless the whole environment is the sandbox's.

    Raises:
        EngineError: something of it is missing, or real credentials are in reach.
    """
    if environ.get(ACTIVE_VARIABLE) != "1":
        raise EngineError(
            f"{ACTIVE_VARIABLE}=1 is missing: the sandbox makes nothing real and runs only where "
            "it was asked for, with `falaj up --sandbox`"
        )
    if not environ.get(CLOUD_VARIABLE):
        raise _mixed(f"{CLOUD_VARIABLE} is missing")
    if not _is_inside(environ.get("PULUMI_BACKEND_URL", ""), _home(environ)):
        raise _mixed("PULUMI_BACKEND_URL names state that isn't the sandbox's")
    if not _is_inside(environ.get("PULUMI_HOME", ""), _pulumi_home(environ)):
        raise _mixed("PULUMI_HOME doesn't name the sandbox's providers")
    left = removals(environ)
    if left:
        raise _mixed(f"real credentials are in reach: {', '.join(left)}")


def _install(environ: Mapping[str, str]) -> Path:
    """Put a provider for each SDK that is installed where the engine looks for its version.

    Also for each SDK that the program has in an environment of its own, by the version there.
    """
    from falaj.sandbox.schema import Package  # noqa: PLC0415 - programs only check

    home = _pulumi_home(environ)
    ours = [name for name in (*SDKS, *UTILITIES) if _is_installed(name)]
    wanted = {(name, Package(name).version) for name in ours}
    wanted |= {(each.package, each.version) for each in sdks.installed(environ).values()}
    for name, version in sorted(wanted):
        folder = home / "plugins" / f"resource-{name}-v{version}"
        folder.mkdir(parents=True, exist_ok=True)
        write_script(folder / f"pulumi-resource-{name}", _SCRIPT.format(package=name))
    if not any(name in SDKS for name in ours) and sdks.VARIABLE not in environ:
        raise EngineError(
            "the sandbox checks against a cloud's SDK, and none is installed; install one of "
            f"Falaj's extras: {', '.join(OF_PROVIDERS.values())}"
        )
    _keep_no_log(home / "logs")
    return home


def _keep_no_log(folder: Path) -> None:
    """Keep the engine from writing down every property of every call, which nobody reads here.

    It has no option for that, and goes without where the folder can't be made. Of a preview of a
    platform's definitions the log took half of the engine's time.
    """
    if folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        folder.write_text("The engine keeps no log of its runs in the sandbox.\n", "utf-8")


def _is_installed(package: str) -> bool:
    from falaj.sandbox.schema import Package  # noqa: PLC0415 - as above

    try:
        Package(package)
    except EngineError:
        return False
    return True


def _refuse_own_backend(environ: Mapping[str, str], own: str) -> None:
    # The backend that Falaj makes by itself is nobody's choice: `falaj shell` sets it.
    allowed = (own, (data_home(environ) / "backend").as_uri())
    url = environ.get("PULUMI_BACKEND_URL")
    if url is not None and url not in allowed:
        raise EngineError(
            f"PULUMI_BACKEND_URL is {url!r}: state of the sandbox and real state never share a "
            f"backend; unset it, or leave the sandbox (allowed: {own})"
        )
    if environ.get("PULUMI_ACCESS_TOKEN"):
        raise EngineError(
            "PULUMI_ACCESS_TOKEN is set: state of the sandbox never goes to Pulumi Cloud; unset "
            "it, or leave the sandbox"
        )


def _refuse_foreign_providers(environ: Mapping[str, str]) -> None:
    for name in sorted({*SDKS, *UTILITIES, *sdks.installed(environ)}):
        found = shutil.which(f"pulumi-resource-{name}", path=environ.get("PATH", os.defpath))
        if found:
            raise EngineError(
                f"{found} is on the PATH and would be taken instead of the sandbox's provider "
                "of that package; take its folder off the PATH"
            )


def _is_inside(place: str, folder: Path) -> bool:
    if not place:
        return False
    path = unquote(urlsplit(place).path) if place.startswith("file:") else place
    return Path(path).expanduser().resolve().is_relative_to(folder.resolve())


def _home(environ: Mapping[str, str]) -> Path:
    return data_home(environ) / "sandbox"


def _pulumi_home(environ: Mapping[str, str]) -> Path:
    # By what its scripts say: two versions of Falaj on one machine must not replace each other's.
    digest = hashlib.sha256(_SCRIPT.encode()).hexdigest()[:12]
    return cache_home(environ) / "sandbox" / digest / "pulumi"


def _mixed(what: str) -> EngineError:
    return EngineError(
        f"{ACTIVE_VARIABLE} asks for the sandbox, but {what}; start the run with "
        f"`falaj up --sandbox` or unset {ACTIVE_VARIABLE}"
    )


def _half(what: str) -> EngineError:
    return EngineError(
        f"{what}, but this run isn't one in the sandbox ({ACTIVE_VARIABLE} isn't set); unset the "
        "variable, or start the run with `falaj up --sandbox`"
    )
