"""What pods of a stack run on real machines: made here, put into the registry beside them.

Controllers are images of the one binary that is built from their Go module. Our own images are
those that `falaj images build` makes, on bases of Debian's packages. Nothing is asked of a
registry elsewhere, and only who pushes and who builds trusts the control plane's authority.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from falaj.components.nearest import nearest
from falaj.engine.controlplane import bases, binaries
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.record import Record, Settings
from falaj.engine.controlplane.registry import Image, Registry, with_libraries
from falaj.engine.progress import Report
from falaj.stacks.command.images import push_image
from falaj.stacks.command.options import the_project
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.images.build import BUILD_BASE, RECIPES, own_storage
from falaj.stacks.images.crane import Crane, trusting
from falaj.stacks.images.items import EMPTY, Item, Lock, Locked, items, load, save
from falaj.stacks.images.kept import BUILDER, Kept
from falaj.stacks.settings import load_file
from falaj.stacks.settings.cloud import InClusterSettings

OURS: Final = tuple(name for name, each in RECIPES.items() if each.run_base in bases.PACKAGES)
"""Our own images that stand on Debian's packages alone; others need CUDA."""
NAMES: Final = (*binaries.IN_PODS, *OURS)
_ABOUT: Final = "Digests in the registry beside a control plane, written by `falaj cluster load`."
_MACHINE: Final = "amd64"
_PROGRAM: Final = "/manager"
"""Where the controllers' charts look for the one program of the image."""


def wanted(names: Sequence[str]) -> tuple[str, ...]:
    """What is to be loaded, each once; all where no name is given.

    Raises:
        StackError: one can't be made here.
    """
    for each in names:
        if each not in NAMES:
            near = nearest(each, NAMES)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise StackError(
                f"name: given {each!r}, which isn't made for real machines; allowed: "
                f"{', '.join(NAMES)}{hint}"
            )
    return tuple(dict.fromkeys(names)) or NAMES


@dataclass(frozen=True)
class Target:
    """The registry beside a control plane that runs."""

    registry: Registry
    host: str
    """What pods call it."""

    @classmethod
    def of(cls, folder: Path) -> Target:
        """That of the control plane in a folder.

        Raises:
            StackError: none runs there, or it has no real machines.
            EngineError: what it wrote of itself can't be read.
        """
        files = Files(folder.absolute())
        record = Record.read(files)
        start = "falaj cluster up --real 2"
        if record is None or not record.is_running:
            raise StackError(
                f"no control plane runs in {folder}; start one with real machines: {start}"
            )
        if not record.registry:
            raise StackError(
                f"the control plane in {folder} has no real machines, and simulated ones pull no "
                f"images; end it with `falaj cluster down`, then start one with them: {start}"
            )
        host = Settings.read(files).real_registry
        return cls(Registry(record.registry, files.authority), host)


def place(
    lock: Path | None, stack: str, project: Path | None, *, dry_run: bool
) -> tuple[Path, str]:
    """The lock file of a stack, and the path of its images below their registry.

    Args:
        lock: the file that was asked for. Default: the one that the stack's file names.
        stack: the stack's name; where it has no file, one is made from the template of that name.
        project: the project's folder, as ``--project`` has it.
        dry_run: whether no file is made.

    Raises:
        StackError: there is no such stack, it takes no images from a registry, or it names no lock
            file and none was asked for.
    """
    here = the_project(project)
    file = StackFile(stack, here)
    template = here.templates.get(stack)
    if dry_run and template is not None and not file.path.exists():
        settings = load_file(template, here.root)
    else:
        file.ensure()
        settings = file.settings()
    if not isinstance(settings, InClusterSettings):
        raise StackError(
            f"--stack: given {stack!r}, which runs in no cluster; allowed: a stack with "
            "falaj:blueprint cluster, platform or workloads and falaj:registry"
        )
    if lock is None and settings.images is None:
        raise StackError(
            f"{file.shown_path}: falaj:images is missing, so that the stack would not take what "
            "is loaded; name a lock file there, or here with --lock FILE"
        )
    path = lock or here.root / str(settings.images)
    return path, settings.registry.partition("/")[2]


def require_builder() -> None:
    """See that our own images can be built.

    Raises:
        StackError: the builder is missing.
    """
    if shutil.which(BUILDER) is None:
        raise StackError(
            f"{BUILDER} is missing, which builds {' and '.join(OURS)}; on Debian, as root: "
            f"apt-get install {BUILDER}\n"
            f"  without it: falaj cluster load {' '.join(binaries.IN_PODS)}"
        )


@dataclass
class Loader:
    """Fills a registry."""

    target: Target
    below: str
    """Path below the registry, as the stack's ``falaj:registry`` has it; may be empty."""
    say: Report
    wheels: Path | None = None
    dry_run: bool = False
    is_changed: bool = field(default=False, init=False)
    """Whether something was pushed, or would have been."""

    def load(self, names: Sequence[str]) -> dict[str, str]:
        """Make and push what isn't there; digests by name, of a dry run those that are known.

        Raises:
            EngineError: something can't be built, or the registry can't be reached.
            StackError: the same, of our own images.
        """
        known = _images(names)
        found: dict[str, str] = {}
        for number, name in enumerate(names, 1):
            label = f"[{number}/{len(names)}] {name}"
            make = self._controller if name in binaries.IN_PODS else self._ours
            digest = make(known[name], label)
            if digest is not None:
                found[name] = digest
        return found

    def reference(self, item: Item) -> str:
        """What pods call an image, by its tag."""
        return item.at("/".join(filter(None, (self.target.host, self.below))))

    def _repository(self, name: str) -> str:
        return "/".join(filter(None, (self.below, name)))

    def _controller(self, item: Item, label: str) -> str | None:
        if self.dry_run and not binaries.built()[item.name].is_there:
            return self._would(f"{label}: would be built from its Go module and pushed")
        folder = binaries.ensure([item.name], self.say)[item.name]
        program = with_libraries(_PROGRAM, Path(folder) / item.name)
        image = Image.of_program(program, [_PROGRAM])
        repository = self._repository(item.mirror)
        if not self._is_there(repository, image.digest, label):
            if self.dry_run:
                return self._would(f"{label}: would be pushed; it was built before", image.digest)
            self.target.registry.push(repository, image)
            self._pushed(image.digest, label)
        return image.digest

    def _ours(self, item: Item, label: str) -> str | None:
        if self.dry_run and not Kept.any_of(item):
            return self._would(f"{label}: would be built by buildah and pushed")
        recipe = RECIPES[item.name]
        on = {name: self._references[name] for name in (BUILD_BASE, recipe.run_base)}
        kept = Kept(recipe, item, on, _MACHINE)
        repository = self._repository(item.mirror)
        if not kept.is_there:
            if self.dry_run:
                return self._would(f"{label}: would be built anew by buildah and pushed")
            for name in on:
                self._push_base(name)
        with kept.held(self._variables, self.wheels, self.say) as built:
            if not self._is_there(repository, built.digest, label):
                if self.dry_run:
                    return self._would(
                        f"{label}: would be pushed; it was built before", built.digest
                    )
                registry = self.target.registry
                address = "/".join(filter(None, (registry.address, self.below)))
                push_image(built, item, address, None, Crane(authority=registry.authority))
                self._pushed(built.digest, label)
            return built.digest

    def _is_there(self, repository: str, digest: str, label: str) -> bool:
        there = self.target.registry.has(repository, digest)
        if there:
            self.say(f"{label}: is there: {digest}")
        return there

    def _would(self, text: str, digest: str | None = None) -> str | None:
        self.is_changed = True
        self.say(text)
        return digest

    def _pushed(self, digest: str, label: str) -> None:
        self.is_changed = True
        self.say(f"{label}: pushed: {digest}")

    @cached_property
    def _bases(self) -> dict[str, Image]:
        self.say("making the bases of Debian's packages")
        return {name: bases.image(name) for name in bases.PACKAGES}

    @cached_property
    def _references(self) -> dict[str, str]:
        """As pods would call them: an address of this run would make another image of each."""
        return {
            name: f"{self.target.host}/{self._repository(name)}@{each.digest}"
            for name, each in self._bases.items()
        }

    def _push_base(self, name: str) -> None:
        image = self._bases[name]
        if not self.target.registry.has(self._repository(name), image.digest):
            self.target.registry.push(self._repository(name), image)

    def _variables(self, folder: Path) -> Mapping[str, str]:
        """Of a builder that keeps all it has in a folder, and knows the registry as pods do."""
        registries = folder / "registries.conf"
        registry = self.target.registry
        registries.write_text(
            f'[[registry]]\nprefix = "{self.target.host}"\nlocation = "{registry.address}"\n',
            encoding="utf-8",
        )
        return {
            **trusting(registry.authority),
            **own_storage(folder),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        }


def _images(names: Sequence[str]) -> dict[str, Item]:
    """Entries of the bill of materials; charts may have the same names."""
    return {each.name: each for each in items(EMPTY, only=names) if each.kind == "images"}


@dataclass(frozen=True)
class LockFile:
    """The lock file of a stack that takes images from a control plane's registry."""

    path: Path
    host: str
    """What pods call the registry."""

    def require_ours(self, names: Sequence[str]) -> Lock:
        """What is in the file; nothing where there is none.

        Raises:
            StackError: it can't be used, or pins one of the names in another registry: stacks
                that use the file would then look for an image there which only this computer has.
        """
        lock = load(self.path) if self.path.exists() else EMPTY
        for name in names:
            entry = lock.images.get(name)
            if entry is not None and not entry.reference.startswith(f"{self.host}/"):
                raise StackError(
                    f"{self.path}: images.{name} is {entry.reference}, which stands elsewhere; "
                    f"allowed: a file for {self.host} alone, which the control plane's pods ask\n"
                    "  give another one with --lock FILE, and name it in falaj:images of the stack"
                )
        return lock

    def changed(self, digests: Mapping[str, str], loader: Loader) -> Lock | None:
        """What the file has to be for digests of images that were loaded; None where it is so.

        Raises:
            StackError: as `require_ours`.
        """
        old = self.require_ours(tuple(digests))
        known = _images(tuple(digests))
        today = datetime.now(UTC).date().isoformat()
        entries = dict(old.images)
        for name, digest in digests.items():
            entry = Locked(loader.reference(known[name]), digest, today)
            had = entries.get(name)
            if had is None or (had.reference, had.digest) != (entry.reference, digest):
                entries[name] = entry
        new = Lock(entries, old.charts)
        return None if new == old else new

    def write(self, lock: Lock) -> None:
        """Write what it has to be. Raises StackError where it can't be written."""
        save(self.path, lock, _ABOUT)
