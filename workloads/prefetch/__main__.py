"""Command line: ``python -m falaj.workloads.prefetch FOLDER…``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from falaj.workloads.errors import REFUSED, WorkloadError


def require_image(folder: Path) -> None:
    """Refuse a folder that has no image.

    An API server before Kubernetes 1.35 drops image volumes without a word. A kubelet of before,
    beside a newer API server, mounts an empty folder, as containerd does of an artifact that is no
    image.

    Raises:
        WorkloadError: what is the matter with it.
    """
    needed = "image volumes need Kubernetes 1.35 and containerd 2.1 on the node, or later"
    if not os.path.ismount(folder):
        raise WorkloadError(f"{folder}: given no mounted image; {needed}")
    try:
        with os.scandir(folder) as entries:
            is_empty = next(entries, None) is None
    except PermissionError:
        # There is an image, whose own folder is its owner's.
        return
    if is_empty:
        raise WorkloadError(
            f"{folder}: the image that is mounted is empty; {needed}, and the reference has to be "
            "of an image, not of another artifact"
        )


def main(arguments: Sequence[str]) -> int:
    """Hold images until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m falaj.workloads.prefetch",
        description="Hold the images that are mounted in folders, until told to stop.",
        epilog="Exit status: 0 stopped; 2 no image in a folder.",
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    folders: list[Path] = parser.parse_args(list(arguments)).folders
    # Blocked first: the first process of a container has no default for signals.
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    try:
        for folder in folders:
            require_image(folder)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    print(f"images on this node: {len(folders)}", flush=True)
    signal.sigwait(stops)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
