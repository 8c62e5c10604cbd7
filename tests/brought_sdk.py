"""An environment of a program's own, with an SDK in it that ours doesn't have."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import venv
from pathlib import Path

SDK = Path(__file__).parent / "acme" / "pulumi_acme"


def environment(folder: Path) -> Path:
    """A virtual environment with all that ours has, and `pulumi_acme`; returns its packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    shutil.copytree(SDK, packages / "pulumi_acme", ignore=shutil.ignore_patterns("__pycache__"))
    said = packages / "pulumi_acme-1.2.3.dist-info"
    said.mkdir()
    (said / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pulumi_acme\nVersion: 1.2.3\nRequires-Dist: pulumi\n"
    )
    assert Path(sys.prefix) != folder
    return packages
