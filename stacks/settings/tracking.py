"""Where the record of a run is kept, in settings of one machine, and the check of that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from falaj.components.local.arguments.training_run import HOST_ALLOWED, TrackingArgs
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.tracking import EXPERIMENT, SERVER, TrackedArgs
from falaj.stacks.settings.paths import Named, is_file, is_folder, resolved
from falaj.stacks.settings.problems import Drop, Finding, format_value
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.watching import refused_host

_TRACKING_FILE: Final = "mlflow.db"
"""MLflow's own, where nothing else is said, in the folder where it runs."""


class TrackingSettings(Section):
    """Where parameters, figures of epochs and of the held-out part, environment, and digests of
    dataset, code and model are kept for MLflow: a file of this machine, or a server. A change of
    it trains nothing again."""

    file: Annotated[Named | None, SameAs(TrackingArgs, "tracking_file")] = None
    """A relative path starts at the project's folder. Default: mlflow.db there, which ``mlflow
    ui`` shows where it runs in that folder."""
    server: Annotated[str, SERVER] | None = None
    """Address of an MLflow tracking server. Default: the file."""
    experiment: Annotated[Annotated[str, EXPERIMENT] | None, SameAs(TrackedArgs, "experiment")] = (
        None
    )
    secret_file: Annotated[Named | None, SameAs(TrackingArgs, "tracking_secret")] = None
    """A relative path starts at the project's folder."""
    authority: Annotated[Named | None, SameAs(TrackingArgs, "tracking_authority")] = None
    """A relative path starts at the project's folder."""
    allowed_hosts: Annotated[
        list[Annotated[str, HOST_ALLOWED]], SameAs(TrackingArgs, "tracking_allow")
    ] = Field(default_factory=list)


def check_tracking(given: TrackingSettings | None, root: Path) -> list[Finding]:
    """A tracking server abroad, files for it that aren't there, and a file that can't be one."""
    above = ("training", "tracking")
    if given is None:
        return []
    if given.server is None:
        return _check_tracking_file(given, above, root)
    server = (*above, "server")
    if given.file is not None:
        return [
            Finding(
                (*above, "file"),
                "given beside server: a run is kept in a file or by a server; leave one of them "
                "out",
                (Drop((*above, "file")),),
            )
        ]
    try:
        parts = urlsplit(given.server)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return [Finding(server, f"given {format_value(given.server)}: {error}")]
    found = [
        Finding((*above, key), f"there is no file {resolved(path, root)}")
        for key, path in (("secretFile", given.secret_file), ("authority", given.authority))
        if path is not None and not is_file(resolved(path, root))
    ]
    if (reason := refused_host(host, given.allowed_hosts)) is not None:
        found.append(Finding(server, reason, (Drop(above),)))
    return found


def _check_tracking_file(
    given: TrackingSettings, above: tuple[str, ...], root: Path
) -> list[Finding]:
    """What is of a server without one, and a file where none can be."""
    found = [
        Finding((*above, key), "is of a server; name that as well, or leave it out")
        for key, value in (
            ("secretFile", given.secret_file),
            ("authority", given.authority),
            ("allowedHosts", given.allowed_hosts),
        )
        if value
    ]
    if given.file is not None:
        path = resolved(given.file, root)
        if is_folder(path) or not is_folder(path.parent):
            found.append(
                Finding(
                    (*above, "file"),
                    f"given {path}; allowed: a file in a folder that is there; it is made where "
                    "it isn't",
                )
            )
    return found


def tracking_args(settings: TrackingSettings | None, root: Path) -> TrackingArgs:
    """Where the run is sent, as the component takes it; its host was judged with the settings."""
    if settings is None:
        return {}
    if settings.file is not None or settings.server is None:
        return {
            "tracking": None,  # in the place of the section of that name
            "tracking_file": str(resolved(settings.file or _TRACKING_FILE, root)),
            "tracking_experiment": settings.experiment,
        }
    # The packs take a while to load, and few stacks have a server.
    from falaj.policies.reading.hosts import is_private  # noqa: PLC0415

    host = urlsplit(settings.server).hostname or ""
    judged = [] if is_private(host) else [host]
    secret, authority = settings.secret_file, settings.authority
    return {
        "tracking": settings.server,
        "tracking_experiment": settings.experiment,
        "tracking_secret": str(resolved(secret, root)) if secret is not None else None,
        "tracking_authority": str(resolved(authority, root)) if authority is not None else None,
        "tracking_allow": list(dict.fromkeys([*settings.allowed_hosts, *judged])),
    }
