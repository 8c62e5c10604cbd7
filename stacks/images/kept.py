"""Our own images, kept in the user's cache for control planes of this computer.

One is built once for all that goes into it: sources, pinned wheels, bases, labels. So a commit
that changes nothing of it makes no other image, as it would where the commit's time goes in.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from falaj.engine.errors import explain_os_error
from falaj.engine.files import cache_home, exclusive
from falaj.engine.progress import Report, step
from falaj.stacks.images.archive import layout_digest
from falaj.stacks.images.build import (
    EARLIEST,
    Built,
    Recipe,
    build_image,
    build_options,
    sbom,
    stage_own,
)
from falaj.stacks.images.items import Item
from falaj.stacks.images.layers import WheelsLayer, wheels_of

BUILDER: Final = "buildah"
#: Machines of this computer read it: gigabytes are packed and unpacked five times as fast.
_COMPRESSION: Final = "zstd"
_UNFINISHED: Final = "unfinished-"
_LAYOUT: Final = "layout"
_CONTENTS: Final = "sbom.cdx.json"


def home() -> Path:
    """The folder of all of them."""
    return cache_home() / "images"


@dataclass(frozen=True)
class Kept:
    """One image, whether it was built already or not."""

    recipe: Recipe
    image: Item
    """Its entry in the bill of materials."""
    bases: Mapping[str, str]
    """References of the bases by short name, with digests."""
    machine: str
    """``amd64`` or ``arm64``."""

    @staticmethod
    def any_of(image: Item) -> bool:
        """Whether one of its name and version was ever built here, of whatever sources."""
        return any(home().glob(f"{image.name}-{image.tag}-*"))

    @cached_property
    def folder(self) -> Path:
        """Where it is kept: another folder for every change of what goes into it.

        Raises:
            StackError: a source is missing, or requirements can't be read.
        """
        wheels = self.recipe.wheels(self.machine)
        bom = sbom(self.image, self.bases[self.recipe.run_base], wheels, epoch=EARLIEST)
        options = build_options(self.recipe, self.image, self.bases, self.machine)
        whole = hashlib.sha256(repr((BUILDER, EARLIEST, _COMPRESSION, options)).encode())
        # Of the wheels' layer: what is staged but for our code and the list of contents, which
        # steps after it copy.
        under = (BUILDER, EARLIEST, _COMPRESSION, self.machine, sorted(self.bases.items()))
        below = hashlib.sha256(repr(under).encode())
        with tempfile.TemporaryDirectory(prefix="falaj-build-") as name:
            staged = Path(name)
            stage_own(self.recipe, staged, wheels, bom=bom)
            for path in sorted(each for each in staged.rglob("*") if each.is_file()):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                line = f"{path.relative_to(staged)} {content}\n".encode()
                whole.update(line)
                if path.parent == staged and path.name != _CONTENTS:
                    below.update(line)
        return home() / f"{self._prefix}{below.hexdigest()[:12]}-{whole.hexdigest()[:12]}"

    @property
    def _prefix(self) -> str:
        return f"{self.image.name}-{self.image.tag}-"

    def _wheels(self) -> WheelsLayer | None:
        """The layer of wheels of one that was built with the same ones; None: there is none."""
        same = self.folder.name.rpartition("-")[0]
        found = (wheels_of(each / _LAYOUT) for each in sorted(home().glob(f"{same}-*")))
        return next((each for each in found if each is not None), None)

    @property
    def is_there(self) -> bool:
        """Whether it was built: its folder appears whole or not at all."""
        return self.folder.is_dir()

    @property
    def built(self) -> Built:
        """What was built. Raises StackError where it is damaged."""
        layout = self.folder / _LAYOUT
        return Built(self.image.name, layout, layout_digest(layout), self.folder / _CONTENTS)

    @contextmanager
    def held(
        self, variables: Callable[[Path], Mapping[str, str]], wheels: Path | None, say: Report
    ) -> Generator[Built]:
        """Build it unless it is there; meanwhile nobody else builds or removes one of its name.

        Args:
            variables: of the builder, which may keep files in the folder that it is called with.
            wheels: a folder with wheels. Default: pip's own index.
            say: gets lines of progress.

        Raises:
            EngineError: the cache can't be written.
            StackError: something is missing, or the builder failed.
        """
        name = self.image.name
        try:
            home().mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain_os_error(error, f"making the folder {home()}") from error
        with exclusive(home() / f"{name}.lock", say, name):
            if not self.is_there:
                try:
                    self._build(variables, wheels, say)
                except OSError as error:
                    raise explain_os_error(error, f"building {name} into {home()}") from error
            yield self.built

    def _build(
        self, variables: Callable[[Path], Mapping[str, str]], wheels: Path | None, say: Report
    ) -> None:
        name = self.image.name
        for left in home().glob(f"{_UNFINISHED}{name}-*"):  # the lock is ours
            shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{name}-", dir=home()))
        try:
            layer = self._wheels()
            long = "" if layer else ", which takes some minutes"
            with step(say, f"{name}: is built{long}") as progress:
                build_image(
                    self.recipe, self.image, self.bases, work / "out", tool=BUILDER,
                    machine=self.machine, epoch=EARLIEST, wheels=wheels,
                    say=lambda line: progress.update(line.removeprefix(f"{name}: ")),
                    variables=variables(work), compression=_COMPRESSION, layer=layer,
                )  # fmt: skip
            # Of those before it none is asked for again, and each has a gigabyte.
            for old in home().glob(f"{self._prefix}*"):
                shutil.rmtree(old, ignore_errors=True)
            (work / "out" / name).rename(self.folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
