"""Names that become paths: models, versions, aliases and files of a package."""

from __future__ import annotations

import re

from falaj.workloads.errors import WorkloadError

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_RESERVED = frozenset({"audit.jsonl"})


def check_model_name(name: str) -> str:
    """Return ``name`` if it may name a model.

    Raises:
        WorkloadError: it could leave the registry's folder or isn't portable.
    """
    if not _MODEL.fullmatch(name) or name in _RESERVED:
        message = f"{name!r} can't name a model; allowed: 1 to 64 letters, digits, '.', '_', '-'"
        raise WorkloadError(f"{message}, beginning with a letter or digit")
    return name


def check_file_name(name: str) -> str:
    """Return ``name`` if it may name a file of a package.

    Raises:
        WorkloadError: it could leave the package's folder or isn't portable.
    """
    if not _FILE.fullmatch(name):
        message = f"{name!r} can't name a file of a package; allowed: 1 to 128 letters, digits"
        raise WorkloadError(f"{message}, '.', '_', '-', beginning with a letter or digit")
    return name


def check_alias(name: str) -> str:
    """Return ``name`` if it may name an alias; a number may not, so that it can't hide a version.

    Raises:
        WorkloadError: anything else.
    """
    if not _ALIAS.fullmatch(name):
        message = f"{name!r} can't name an alias; allowed: 1 to 64 small letters, digits and '-'"
        raise WorkloadError(f"{message}, beginning with a letter (such as 'production')")
    return name


def is_version(name: str) -> bool:
    """Tell whether a folder's name is a version: 1, 2, … without leading zeros."""
    return _VERSION.fullmatch(name) is not None
