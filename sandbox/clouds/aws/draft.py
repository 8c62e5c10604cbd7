"""A resource as it is asked for: its known values by path, and the place it is meant for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from falaj.sandbox.clouds.aws.regions import partition_of
from falaj.sandbox.clouds.model import Properties
from falaj.wire import UNKNOWN, Unknown

ACCOUNT = "000000000000"
"""The sandbox's account: twelve digits as AWS has them, and nobody's."""


@dataclass(frozen=True)
class Draft:
    """The inputs of one resource together with its provider's settings."""

    token: str
    inputs: Properties
    config: Properties

    @property
    def region(self) -> str:
        """The resource's own region, else the provider's; empty when neither is known."""
        for source in (self.inputs, self.config):
            region = source.get("region")
            if isinstance(region, str):
                return region
            if isinstance(region, Unknown):
                return ""
        return ""

    @property
    def partition(self) -> str:
        """``aws``, ``aws-cn`` and so on, by the region."""
        return partition_of(self.region)

    def each(self, path: str) -> Iterator[tuple[str, Any]]:
        """Every known value at a path such as ``ingress[].fromPort``, with its exact path."""
        return walk(self.inputs, path)

    def get(self, path: str) -> Any:
        """The known value at a path; None when absent or unknown."""
        return next((value for _, value in self.each(path)), None)

    def text(self, path: str) -> str:
        """The known string at a path; empty when absent, unknown or of another type."""
        value = self.get(path)
        return value if isinstance(value, str) else ""

    def given(self, path: str) -> bool:
        """Whether something stands at a path, be it unknown."""
        return any(True for _ in walk(self.inputs, path, unknown=True))

    def arn(
        self, service: str, resource: str, *, regional: bool = True, owned: bool = True
    ) -> str:
        """The ARN of something in the sandbox's account."""
        region = self.region if regional else ""
        account = ACCOUNT if owned else ""
        return f"arn:{self.partition}:{service}:{region}:{account}:{resource}"


def walk(values: object, path: str, *, unknown: bool = False) -> Iterator[tuple[str, Any]]:
    """The values at a path, where ``[]`` stands for every item of a list or map.

    Unknown values are left out unless asked for; absent ones always.
    """
    yield from _walk(values, path.split("."), "", unknown)


def as_list(value: object) -> Sequence[Any]:
    """The value when it is a list, else nothing."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return cast("Sequence[Any]", value)
    return ()


def as_map(value: object) -> Mapping[str, Any]:
    """The value when it is a map, else nothing."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def or_unknown(values: Iterable[object]) -> bool:
    """Whether one of the values is not known yet."""
    return any(value is UNKNOWN for value in values)


def _walk(value: object, steps: list[str], at: str, unknown: bool) -> Iterator[tuple[str, Any]]:
    if value is None or (isinstance(value, Unknown) and (steps or not unknown)):
        return
    if not steps:
        yield at, value
        return
    step, rest = steps[0], steps[1:]
    if step.endswith("[]"):
        name = step[:-2]
        inner = as_map(value).get(name) if name else value
        where = _join(at, name)
        for index, item in enumerate(as_list(inner)):
            yield from _walk(item, rest, f"{where}[{index}]", unknown)
        for key, item in as_map(inner).items():
            yield from _walk(item, rest, _join(where, key), unknown)
        return
    yield from _walk(as_map(value).get(step), rest, _join(at, step), unknown)


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at and name else at or name
