"""Rules of other scanners that demand copies in other regions, and how each is told to stop.

>>> from falaj.policies.conflicts import print_configuration
>>> print(print_configuration("cfn-guard"))
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from falaj.policies.model import PolicyError

GeoRedundancy = Literal["forbidden", "paired"]
_FILE: Final = "conflicts.yaml"
_Text = Annotated[str, StringConstraints(min_length=3)]


class Conflict(BaseModel):
    """A rule that clashes with residency.

    Attributes:
        id: as its tool writes it.
        aliases: further spellings of the id.
        demands: what the rule wants.
        reason: why it is switched off.
        clash: ``always``, or ``pair`` where it only does if copies in the paired region, which is
            in the country, are forbidden.
        source: where the rule was read.
        name: whose it is, for those that no scanner of ours carries.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: _Text
    aliases: tuple[_Text, ...] = ()
    demands: _Text
    reason: _Text
    clash: Literal["always", "pair"]
    source: _Text
    name: str = ""


class Scanner(BaseModel):
    """A tool, its rules that clash, and the file in which they are switched off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: _Text
    name: _Text
    version: _Text
    file: _Text
    usage: _Text
    rules: Annotated[tuple[Conflict, ...], Field(min_length=1)]
    environment: Mapping[str, str] = Field(default_factory=dict)

    def clashing(self, geo_redundancy: GeoRedundancy = "forbidden") -> tuple[Conflict, ...]:
        """The rules that clash, given whether copies in the paired region are allowed."""
        return tuple(
            each for each in self.rules if each.clash == "always" or geo_redundancy == "forbidden"
        )


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    scanners: tuple[Scanner, ...]
    benchmarks: tuple[Conflict, ...]


@dataclass(frozen=True)
class ConfigurationFile:
    """A file that makes a scanner leave out what clashes."""

    name: str
    text: str


@cache
def _document() -> _Document:
    text = resources.files(__package__ or "falaj.policies").joinpath(_FILE).read_text("utf-8")
    return _Document.model_validate(yaml.safe_load(text))


def scanners() -> tuple[Scanner, ...]:
    """All scanners that are known."""
    return _document().scanners


def benchmarks() -> tuple[Conflict, ...]:
    """Demands of benchmarks, which no file switches off."""
    return _document().benchmarks


def scanner(key: str) -> Scanner:
    """A scanner by its key. Raises PolicyError for an unknown one."""
    found = next((each for each in scanners() if each.key == key), None)
    if found is None:
        keys = ", ".join(each.key for each in scanners())
        raise PolicyError(f"no scanner is called {key!r}; there are {keys}")
    return found


def configuration(
    key: str, geo_redundancy: GeoRedundancy = "forbidden"
) -> tuple[ConfigurationFile, ...]:
    """The files that make a scanner leave out what clashes, each in the scanner's own format.

    Args:
        key: the scanner's, one of ``checkov``, ``trivy``, ``kics``, ``prowler``, ``cfn-guard``,
            ``pulumi``.
        geo_redundancy: as in the policies' settings; with ``paired``, rules that only demand a
            copy in Azure's paired region stay on.

    Raises:
        PolicyError: no scanner has this key.
    """
    found = scanner(key)
    rules = found.clashing(geo_redundancy)
    # JSON has no comments.
    head = "" if found.file.endswith(".json") else _head(found, geo_redundancy)
    files = [ConfigurationFile(found.file, head + _FORMATS[key](rules))]
    if found.environment:
        lines = [
            "# Without this the scanner leaves the country's region out altogether.\n",
            *(f"{name}={value}\n" for name, value in found.environment.items()),
        ]
        files.append(ConfigurationFile(f"{key}.env", "".join(lines)))
    return tuple(files)


def print_configuration(key: str, geo_redundancy: GeoRedundancy = "forbidden") -> str:
    """The files of `configuration` one after the other, each under its name.

    A single file is printed as it is, so that it can be piped into place.
    """
    files = configuration(key, geo_redundancy)
    if len(files) == 1:
        return files[0].text
    return "\n".join(f"# file: {each.name}\n{each.text}" for each in files)


def _head(found: Scanner, geo_redundancy: GeoRedundancy) -> str:
    stance = {
        "forbidden": "copies in another region are forbidden, in Azure's paired one too",
        "paired": "copies in Azure's paired region, which is in the country, are allowed",
    }[geo_redundancy]
    return (
        f"# {found.name} ({found.version}): rules that demand copies in other regions are off.\n"
        f"# Stance: {stance}.\n# Use: {found.usage}\n"
    )


def _remark(rule: Conflict, indent: int) -> str:
    text = f"{rule.demands} {rule.reason}"
    start = " " * indent + "# "
    return textwrap.fill(text, 100, initial_indent=start, subsequent_indent=start) + "\n"


def _listed(key: str, rules: Iterable[Conflict], indent: int = 2) -> str:
    """A list of ids under a key, each with why; ``[]`` where there is none."""
    items = [_remark(each, indent) + f"{' ' * indent}- {each.id}\n" for each in rules]
    return f"{key}:\n{''.join(items)}" if items else f"{key}: []\n"


def _trivy(rules: Iterable[Conflict]) -> str:
    """https://trivy.dev/latest/docs/configuration/filtering/#trivyignoreyaml"""
    items = [
        f"  - id: {name}\n    statement: {json.dumps(f'{each.demands} {each.reason}')}\n"
        for each in rules
        for name in (each.id, *each.aliases)
    ]
    return f"misconfigurations:\n{''.join(items)}" if items else "misconfigurations: []\n"


def _prowler(rules: Iterable[Conflict]) -> str:
    """The form of prowler/config/aws_mutelist_example.yaml, which goes for Azure as well."""
    items = [
        f"        {each.id}:\n"
        '          Regions: ["*"]\n          Resources: ["*"]\n'
        f"          Description: {json.dumps(f'{each.demands} {each.reason}')}\n"
        for each in rules
    ]
    checks = f"      Checks:\n{''.join(items)}" if items else "      Checks: {}\n"
    return f'Mutelist:\n  Accounts:\n    "*":\n{checks}'


def _guard(rules: Iterable[Conflict]) -> str:
    """What the registry's rules look for in a resource's metadata."""
    listed = textwrap.indent(_listed("SuppressedRules", rules), "    ")
    return f"Metadata:\n  guard:\n{listed}"


def _pulumi(rules: Iterable[Conflict]) -> str:
    """https://www.pulumi.com/docs/iac/packages-and-automation/crossguard/configuration/"""
    found = {each.id: {"enforcementLevel": "disabled"} for each in rules}
    return json.dumps(found, indent=2) + "\n"


_FORMATS: Final[Mapping[str, Callable[[tuple[Conflict, ...]], str]]] = {
    "checkov": lambda rules: _listed("skip-check", rules),
    "trivy": _trivy,
    "kics": lambda rules: _listed("exclude-queries", rules),
    "prowler": _prowler,
    "cfn-guard": _guard,
    "pulumi": _pulumi,
}
