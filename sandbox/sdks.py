"""Which Pulumi SDKs a program has in the Python that runs it, of whichever version.

A program of somebody else has an environment of its own. Its resources are checked against the
types of its own SDKs, so a stand-in looks for them there first: their modules alone, with our
own ``pulumi``, and never for anything else.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

SDKS: Final = {
    "aws": "pulumi_aws",
    "azure-native": "pulumi_azure_native",
    "kubernetes": "pulumi_kubernetes",
}
"""The module of the SDK of each cloud's package."""

UTILITIES: Final = {"random": "pulumi_random", "tls": "pulumi_tls"}
"""The same of packages that make values; who uses one has installed its SDK."""

VARIABLE: Final = "FALAJ_SANDBOX_SDKS"
"""The folder with the packages of the Python that runs the program, where that isn't ours."""

_PLUGIN: Final = "pulumi-plugin.json"
#: Forms of the vendor's names and versions, which become those of folders and scripts
#: (https://github.com/pulumi/pulumi/blob/master/pkg/codegen/schema/pulumi.json, "name").
_NAME: Final = re.compile(r"[a-zA-Z][-a-zA-Z0-9_]*")
_VERSION: Final = re.compile(r"v?[0-9][-+.0-9A-Za-z]*")


@dataclass(frozen=True)
class Sdk:
    """An installed SDK of a provider."""

    package: str
    """As the engine calls it, such as ``azure-native``."""
    module: str
    version: str
    """Of the provider that the SDK asks for."""
    folder: Path


def variables(environment: Path) -> dict[str, str]:
    """The variable that names a program's environment; none for our own, or one without packages.

    Args:
        environment: a virtual environment, whichever version of Python it has.
    """
    if environment.resolve() == Path(sys.prefix).resolve():
        return {}
    found = sorted(environment.glob("lib/python3*/site-packages"))
    return {VARIABLE: str(found[-1])} if found else {}


def for_program(base: Mapping[str, str], environment: Path) -> dict[str, str]:
    """Variables with the one that names a program's environment, and never another program's, as
    in a shell of the sandbox.

    Args:
        base: the variables.
        environment: a virtual environment, whichever version of Python it has.
    """
    others = {name: value for name, value in base.items() if name != VARIABLE}
    return others | variables(environment)


def installed(environ: Mapping[str, str] | None = None) -> dict[str, Sdk]:
    """The SDKs where the program runs, by their packages' names; with no variable, where we run.

    Args:
        environ: variables. Default: ours.
    """
    named = (os.environ if environ is None else environ).get(VARIABLE)
    folder = Path(named or sysconfig.get_paths()["purelib"])
    read = (_read(file) for file in sorted(folder.glob(f"*/{_PLUGIN}")))
    return {each.package: each for each in read if each is not None}


def of_program(package: str) -> Sdk | None:
    """The program's own SDK of a package, which is imported from there from now on.

    None where the program runs in our Python, or has no such SDK.
    """
    if VARIABLE not in os.environ:
        return None
    known = installed()
    if package in known and not any(isinstance(each, _OfTheProgram) for each in sys.meta_path):
        modules = {sdk.module: str(sdk.folder.parent) for sdk in known.values()}
        sys.meta_path.insert(0, _OfTheProgram(modules))
    return known.get(package)


class _OfTheProgram(metadata.DistributionFinder):
    """Finds the program's SDKs before ours."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, if it is an SDK's top one; what is inside is found from there."""
        folder = self._folders.get(fullname)
        return PathFinder.find_spec(fullname, [folder], target) if folder else None

    def find_distributions(
        self, context: metadata.DistributionFinder.Context | None = None
    ) -> Iterable[metadata.Distribution]:
        """What is installed under an SDK's name: an SDK asks for its own version."""
        name = context.name if context else None
        folder = self._folders.get((name or "").replace("-", "_"))
        if not folder:
            return ()
        return metadata.MetadataPathFinder.find_distributions(
            metadata.DistributionFinder.Context(name=name, path=[folder])
        )


def _read(file: Path) -> Sdk | None:
    """What an SDK says of the provider that it belongs to; None where that can't be read."""
    folder = file.parent
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        if not described.get("resource"):
            return None
        # A provider with parameters is one program for many packages: no SDK alone tells which.
        if described.get("parameterization"):
            return None
        name = str(described.get("name") or folder.name.removeprefix("pulumi_").replace("_", "-"))
        version = str(described.get("version") or _version(folder))
    except (OSError, ValueError, AttributeError):
        return None
    if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version)):
        return None
    return Sdk(name, folder.name, version, folder)


def _version(folder: Path) -> str:
    found = metadata.distributions(name=folder.name, path=[str(folder.parent)])
    return next((each.version for each in found), "")
