"""What there is to pin and to copy: the bill of materials' images and charts, as items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.components.kubernetes.bill_of_materials import Chart, Image, charts, images
from falaj.components.nearest import nearest
from falaj.stacks.errors import StackError
from falaj.stacks.images.lock import Kind, Lock


@dataclass(frozen=True)
class Item:
    """An image or a chart, with its digest as far as it is known."""

    kind: Kind
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
