"""What a publisher hands in: the files of a folder, plain or sealed, and a file of fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_bytes, read_json
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.manifest import check_fields
from falaj.workloads.registry.names import check_file_name
from falaj.workloads.registry.sealed import SUFFIX, unseal

DEFAULT_FILES = ("model.onnx",)
DEFAULT_CONTEXT = "optimization:{run}:{name}"
"""The role that falaj.workloads.optimization seals its models under."""


def read_fields(path: Path) -> dict[str, Any]:
    """Read what the publisher says of the model (``fields.json``).

    Raises:
        WorkloadError: missing, not a JSON object, or a field is unknown, missing or wrong.
    """
    document: Any = read_json(path, "the file of the package's fields")
    if not isinstance(document, dict):
        raise WorkloadError(f"{path} must hold a JSON object")
    fields = cast(dict[str, Any], document)
    check_fields(fields, str(path))
    return fields


def read_files(
    folder: Path,
    names: Sequence[str],
    fields: Mapping[str, Any],
    keyring: KeyRing,
    context: str = DEFAULT_CONTEXT,
) -> dict[str, bytes]:
    """Read files to publish, decrypting in memory those that are sealed (``NAME.sealed``).

    Args:
        folder: where they lie.
        names: without ``.sealed``.
        fields: the package's fields, for ``{run}``.
        keyring: unseals.
        context: the role of sealed files; ``{run}`` stands for lineage.run, ``{name}`` for the
            file's name.

    Raises:
        IntegrityError: a sealed file was changed, or sealed for something else.
        WorkloadError: a file is missing, or there as both plain and sealed.
    """
    files: dict[str, bytes] = {}
    for name in names:
        plain = folder / check_file_name(name)
        sealed = plain.with_name(name + SUFFIX)
        if plain.exists() and sealed.exists():
            raise WorkloadError(f"{folder} has both {name} and {sealed.name}: remove one of them")
        if sealed.exists():
            role = context.replace("{run}", str(fields["lineage"].get("run", "")))
            try:
                files[name] = unseal(sealed, keyring, role.replace("{name}", name).encode())
            except IntegrityError as error:
                hint = "the run in the fields, --context and the key ring must be those of"
                raise IntegrityError(f"{error}\n{hint} {sealed}") from error
        else:
            files[name] = read_bytes(plain, "a file to publish")
    return files
