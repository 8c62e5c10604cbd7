"""A browser without a window, for the tests that look at reports.

``python -m falaj.engine.browser ensure`` finds one, else installs Debian's package where it may.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from falaj.engine import debian
from falaj.engine.errors import EngineError

#: All speak the same protocol; the first that is there is used.
NAMES: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "msedge", "microsoft-edge",
)  # fmt: skip
_ELSEWHERE: Final = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
_PACKAGE: Final = "chromium"


class BrowserError(Exception):
    """No browser can be found or installed; the message says what to install."""


def find() -> Path | None:
    """The browser on this machine, or None."""
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    return next((Path(each) for each in _ELSEWHERE if Path(each).exists()), None)


def ensure() -> Path:
    """The browser on this machine; installed where there is none and we may.

    Raises:
        BrowserError: there is none, and it can't be installed from here.
    """
    if found := find():
        return found
    try:
        debian.install([_PACKAGE])
    except EngineError as error:
        raise BrowserError(
            "no browser is on this machine: install Chromium, Google Chrome or Microsoft Edge "
            f"so that one of {', '.join(NAMES)} is on the PATH; {error}"
        ) from error
    if found := find():
        return found
    raise BrowserError(f"the package {_PACKAGE} is installed, but none of {', '.join(NAMES)} is")


def main(arguments: list[str]) -> int:
    """The command line: ``ensure``. Prints the browser's path."""
    if arguments != ["ensure"]:
        sys.stderr.write("usage: python -m falaj.engine.browser ensure\n")
        return 2
    try:
        sys.stdout.write(f"{ensure()}\n")
    except BrowserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
