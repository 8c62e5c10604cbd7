"""The scripts by which the engine starts our language host where the vendor's is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from falaj.engine.errors import explain_os_error
from falaj.engine.files import cache_home, replace_file

PYTHON_VARIABLE = "FALAJ_PYTHON"
"""Names the interpreter that has this package; `falaj.engine.launch.environment` sets it."""

HOST = "pulumi-language-python"

_HOST_SCRIPT = f"""#!/bin/sh
# Starts Falaj's Python language host for the Pulumi engine (see engine/languagehost/).
if [ -z "${PYTHON_VARIABLE}" ]; then
    echo "error: this engine belongs to Falaj; run it in the shell that 'falaj shell' opens" >&2
    exit 1
fi
exec "${PYTHON_VARIABLE}" -P -m falaj.engine.languagehost "$@"
"""

_DYNAMIC_SCRIPT = """#!/bin/sh
# Serves the dynamic providers (pulumi.dynamic) of a program with the Python of that program.
python=python3
case "$PULUMI_RUNTIME_VIRTUALENV" in
    "") ;;
    *) python="$PULUMI_RUNTIME_VIRTUALENV/bin/python" ;;
esac
exec "$python" -u -m pulumi.dynamic "$@"
"""

SCRIPTS = {HOST: _HOST_SCRIPT, "pulumi-resource-pulumi-python": _DYNAMIC_SCRIPT}


def vendor_host(engine: Path) -> Path | None:
    """The vendor's Python language host, beside `engine` or on the PATH; None without one."""
    ours = cache_home().resolve()
    folders = [str(engine.resolve().parent), str(engine.parent), *os.get_exec_path()]
    for folder in folders:
        found = shutil.which(HOST, path=folder)
        if found and not (Path(found).resolve().is_relative_to(ours) and _is_ours(Path(found))):
            return Path(found)
    return None


def install(folder: Path) -> None:
    """Put the scripts into `folder`, replacing older ones; raises EngineError when it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in SCRIPTS.items():
            write_script(folder / name, text)
    except OSError as error:
        raise explain_os_error(error, f"installing the language host in {folder}") from error


def write_script(target: Path, text: str) -> None:
    """Make an executable file of `text`, whole or not at all, unless it is there; OSError."""
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return
    replace_file(target, text, 0o755)


def _is_ours(path: Path) -> bool:
    """Whether the script at `path` is ours, and not the vendor's program from a download."""
    with path.open("rb") as file:
        return b"Falaj" in file.read(256)
