"""What there is to pin and to copy, as items, and the lock file with their digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import yaml

from falaj.components.kubernetes.bill_of_materials import Chart, Image, charts, images
from falaj.components.nearest import nearest
from falaj.components.specification.limits import DIGEST
from falaj.engine.files import replace_file
from falaj.stacks.errors import StackError

# The lock file: which digest each image's tag stood for when somebody looked.
#
# Stacks refer to it, so that what runs is what was looked at, whatever happens to tags upstream::
#
#     images:
#       kueue:
#         reference: registry.k8s.io/kueue/kueue:v0.19.2
#         digest: sha256:…
#         seen: '2026-11-21'
#     charts: {}

ItemKind = Literal["images", "charts"]
KINDS: Final[tuple[ItemKind, ...]] = ("images", "charts")
_KEYS: Final = frozenset({"reference", "digest", "seen"})
_PINNED: Final = "Digests that registries named, written by `falaj images pin`. Commit this file."


class LockError(StackError):
    """A lock file that can't be used; names the file, the key and what is allowed."""


@dataclass(frozen=True)
class Locked:
    """What a tag stood for."""

    reference: str
    """What was asked for, with its tag."""
    digest: str
    """``sha256:…``."""
    seen: str
    """Date on which the registry said so, ``YYYY-MM-DD``."""


@dataclass(frozen=True)
class Lock:
    """The content of a lock file: by kind, by name."""

    images: Mapping[str, Locked]
    charts: Mapping[str, Locked]

    def of(self, kind: ItemKind) -> Mapping[str, Locked]:
        """The images or the charts."""
        return self.images if kind == "images" else self.charts


EMPTY: Final = Lock({}, {})


def read_lock(path: Path) -> dict[str, str]:
    """Digests of images by short name: what the components' argument ``images`` takes.

    Raises:
        LockError: the file is missing, isn't a lock, or an entry can't be used.
    """
    return {name: entry.digest for name, entry in load(path).images.items()}


def load(path: Path) -> Lock:
    """A lock file with all that it says.

    Raises:
        LockError: the file is missing, isn't a lock, or an entry can't be used.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LockError(
            f"there is no lock file {path}; write one with: falaj images pin --lock {path}\n"
            "  for real machines of this computer: falaj cluster load"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise LockError(f"{path} cannot be read as a lock file: {reason}") from None
    if not isinstance(content, dict):
        raise LockError(
            f"{path}: given {type(content).__name__}; allowed: a mapping with {', '.join(KINDS)}"
        )
    given = cast("dict[object, object]", content)
    problems = [
        f"{key}: is not a part of a lock file; allowed: {', '.join(KINDS)}"
        for key in given
        if key not in KINDS
    ]
    found: dict[ItemKind, dict[str, Locked]] = {"images": {}, "charts": {}}
    for kind in KINDS:
        known = images() if kind == "images" else charts()
        entries = given.get(kind)
        if entries is None:
            continue
        if not isinstance(entries, dict):
            problems.append(f"{kind}: given {entries!r}; allowed: entries by name")
            continue
        for name, entry in cast("dict[object, object]", entries).items():
            at = f"{kind}.{name}"
            wrong = list(_problems(at, entry))
            if name not in known:
                wrong.append(
                    f"{at}: is not in the bill of materials; take the entry out, or see "
                    "`falaj images list`"
                )
            problems += wrong
            if not wrong:
                found[kind][str(name)] = Locked(**cast("dict[str, str]", entry))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise LockError(f"{path} was refused:\n{listed}")
    return Lock(found["images"], found["charts"])


def _problems(at: str, entry: object) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{at}: given {entry!r}; allowed: a mapping with {', '.join(sorted(_KEYS))}"
        return
    values = cast("dict[object, Any]", entry)
    for key in sorted(_KEYS - values.keys()):
        yield f"{at}.{key}: missing"
    for key, value in values.items():
        if key not in _KEYS:
            yield f"{at}.{key}: is not known; allowed: {', '.join(sorted(_KEYS))}"
        elif not isinstance(value, str):
            yield f"{at}.{key}: given {value!r}; allowed: text in quotes"
        elif key == "digest" and not DIGEST.allows(value):
            yield f"{at}.digest: given {value!r}; allowed: sha256: and 64 of 0-9 and a-f"


def save(path: Path, lock: Lock, about: str = _PINNED) -> None:
    """Write a lock file; a reader at the same time sees the old one or the new one, whole.

    ``about`` is the line at its beginning.

    Raises:
        LockError: it can't be written.
    """
    content = {
        kind: {
            name: {"reference": each.reference, "digest": each.digest, "seen": each.seen}
            for name, each in sorted(lock.of(kind).items())
        }
        for kind in KINDS
    }
    text = f"# {about}\n" + yaml.safe_dump(content, sort_keys=False, width=1000)
    try:
        replace_file(path, text, 0o644)
    except OSError as error:
        raise LockError(f"{path} cannot be written: {error.strerror or error}") from None


@dataclass(frozen=True)
class Item:
    """An image or a chart, with its digest as far as it is known."""

    kind: ItemKind
    name: str
    source: str
    """Registry and repository upstream; the address of a repository of charts that is no
    registry; empty for images that are built here."""
    tag: str
    mirror: str
    """Repository below the mirror's address."""
    digest: str | None
    """The lock's, else the bill of materials'."""
    licence: str
    used_by: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        """Whether it is built here, so that there is nothing to copy."""
        return not self.source

    @property
    def is_archive(self) -> bool:
        """Whether it is a chart outside of registries, fetched as an archive."""
        return self.source.startswith("https://")

    @property
    def upstream(self) -> str:
        """Its reference upstream by tag, for people and for crane."""
        return f"{self.source}:{self.tag}"

    def at(self, registry: str) -> str:
        """Its reference by tag in a mirror."""
        return f"{registry}/{self.mirror}:{self.tag}"


def items(lock: Lock, *, only: Sequence[str] = (), used_by: Sequence[str] = ()) -> list[Item]:
    """Images and charts in the bill of materials' order.

    Args:
        lock: its digests come before the bill of materials'.
        only: names to take. Default: all.
        used_by: add-ons and components whose images to take. Default: all.

    Raises:
        StackError: there is nothing of such a name.
    """
    found = [_image(each, lock) for each in images().values()]
    found += [_chart(each, lock) for each in charts().values()]
    _require_known("name", only, [each.name for each in found])
    _require_known("used by", used_by, [user for each in found for user in each.used_by])
    return [
        each
        for each in found
        if (not only or each.name in only) and (not used_by or set(used_by) & set(each.used_by))
    ]


def _require_known(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for each in given:
        if each not in known:
            near = nearest(each, known, most=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `falaj images list`"
            raise StackError(
                f"{what}: given {each!r}, which is not in the bill of materials; {hint}"
            )


def _image(image: Image, lock: Lock) -> Item:
    locked = lock.images.get(image.name)
    return Item(
        "images", image.name, image.source, image.tag, image.mirror,
        locked.digest if locked else image.digest, image.licence, image.used_by,
    )  # fmt: skip


def _chart(chart: Chart, lock: Lock) -> Item:
    locked = lock.charts.get(chart.name)
    # Tags of registries have no "+": https://helm.sh/docs/topics/registries/
    return Item(
        "charts", chart.name, chart.source.removeprefix("oci://"),
        chart.version.replace("+", "_"), chart.mirror,
        locked.digest if locked else chart.digest, chart.licence, (chart.name,),
    )  # fmt: skip
