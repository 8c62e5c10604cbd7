"""What an argument may be, stated once: for components, stack settings and their schema.

Each kind says its rule in words, and gives a value that it allows. In an annotation of a settings
model (``Annotated[int, Between(1, 10)]``) pydantic checks it as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from falaj.components.catalogue.tag_names import DATA_CLASSES, ENVIRONMENTS

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


#: The error type of pydantic's that refusals by a limit have.
REFUSED = "falaj_limit"


class Limit:
    """A rule for plain values."""

    @property
    def description(self) -> str:
        """The rule, for people."""
        raise NotImplementedError

    def allows(self, value: object) -> bool:
        """Whether the rule allows a value of the right type."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # Components are read without pydantic.
        from pydantic_core import PydanticCustomError, core_schema  # noqa: PLC0415

        def checked(value: Any) -> Any:
            if not self.allows(value):
                raise PydanticCustomError(REFUSED, "not allowed")
            return value

        return core_schema.no_info_after_validator_function(checked, handler(source))


@dataclass(frozen=True)
class TextRule(Limit):
    """Texts of a form: a pattern, and the same in words."""

    pattern: str
    """Regular expression that Python, JavaScript and Rust read alike, from ``^`` to ``$``."""
    rule: str
    """The pattern in words, as in "allowed: 2 to 20 lower-case letters …"."""
    example: str
    """A text that it allows."""

    @property
    def description(self) -> str:
        """The rule and an example."""
        return f"{self.rule}, such as {self.example}"

    def allows(self, value: object) -> bool:
        """Whether the whole of a text is of the form."""
        return isinstance(value, str) and self._compiled.fullmatch(value) is not None

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


class Hint(NamedTuple):
    """What to do instead of giving a value that people expect to be allowed."""

    text: str
    meant: str = ""
    """The value that stands for it here; empty where there is none."""


@dataclass(frozen=True)
class OneOf(Limit):
    """One of a few texts or numbers."""

    values: tuple[str | int, ...]
    hints: Mapping[str, Hint] = field(default_factory=dict[str, "Hint"], compare=False)
    """What to say of others that people expect there, by value."""
    otherwise: str = field(default="", compare=False)
    """What to do where none of the values will do."""

    @property
    def description(self) -> str:
        """The values."""
        return ", ".join(map(str, self.values))

    def allows(self, value: object) -> bool:
        """Whether it is one of them; no truth value counts as a number."""
        return not isinstance(value, bool) and value in self.values


@dataclass(frozen=True)
class ByCloud(OneOf):
    """One of what a cloud has; of several clouds, what one of them has at least."""

    by_cloud: tuple[tuple[str, tuple[str | int, ...]], ...] = ()

    @staticmethod
    def of(
        by_cloud: Mapping[str, Iterable[str | int]],
        hints: Mapping[str, Hint] | None = None,
        otherwise: str = "",
    ) -> ByCloud:
        """``by_cloud`` is what each cloud has; ``hints`` and ``otherwise`` are as in `OneOf`."""
        each = tuple((cloud, tuple(values)) for cloud, values in by_cloud.items())
        every = tuple(dict.fromkeys(value for _, values in each for value in values))
        return ByCloud(every, hints or {}, otherwise, each)

    def on(self, cloud: str) -> OneOf:
        """The rule of one cloud."""
        return OneOf(dict(self.by_cloud)[cloud], self.hints, self.otherwise)


@dataclass(frozen=True)
class Between(Limit):
    """Numbers from ``low`` to ``high``, both included."""

    low: float
    high: float
    above: bool = False
    """Whether ``low`` itself is too low."""
    unit: str = ""
    """What they are numbers of, where the argument's name leaves that open."""

    @property
    def description(self) -> str:
        """The range."""
        unit = f" {self.unit}" if self.unit else ""
        low = plain_number(self.low)
        if self.high == math.inf:
            return (f"above {low}" if self.above else f"of at least {low}") + unit
        high = plain_number(self.high) + unit
        return f"above {low} up to {high}" if self.above else f"from {low} to {high}"

    def allows(self, value: object) -> bool:
        """Whether it is a number in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            return False
        if not math.isfinite(value):
            return False
        return value <= self.high and (value > self.low if self.above else value >= self.low)


def plain_number(value: float) -> str:
    """A number as people write it: whole ones without a point or an exponent."""
    return str(int(value)) if float(value).is_integer() else repr(value)


#: Amounts of which any will do, but none at all.
POSITIVE: Final = Between(0, math.inf, above=True)

# Forms of texts that several components, or components and stack settings, have in common.

TENANT: Final = TextRule(
    r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$",
    "2 to 20 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "acme",
)
#: What both clouds allow in a tag's value: https://docs.aws.amazon.com/tag-editor/latest/userguide/
#: tagging.html (the stricter of the two).
TAG_VALUE: Final = TextRule(
    r"^[\w .:/=+@-]{1,256}$",
    "1 to 256 letters, digits, spaces and . : / = + @ - _",
    "platform@example.ae",
)
ENVIRONMENT: Final = OneOf(ENVIRONMENTS)
DEFAULT_ENVIRONMENT: Final = "production"
DATA_CLASS: Final = OneOf(DATA_CLASSES)
#: Names that become part of the names in a cloud.
NAME: Final = TextRule(
    r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$",
    "2 to 40 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "main",
)
#: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123 labels)
OBJECT: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
    "at most 63 lower-case letters, digits and '-', not at either end",
    "training",
)
#: A workload's name leaves room for what controllers append to it.
WORKLOAD: Final = TextRule(
    r"^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$",
    "1 to 40 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "credit",
)
WORKSPACE_ENDING: Final = "-workspace"
"""Of the names of a workspace's objects. Controllers end the names of pods in ``-`` and five
characters that are no vowels (k8s.io/apimachinery, pkg/util/rand): no colleague's job has a pod of
such a name, to which the person would bring the token."""
EMAIL: Final = TextRule(
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,63}$",
    "an e-mail address",
    "ops@example.ae",
)
#: Both clouds send a budget's alert to ten addresses at most: https://docs.aws.amazon.com/
#: cost-management/latest/userguide/management-limits.html
MOST_EMAILS: Final = 10
SERVICE: Final = TextRule(
    r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$",
    "1 to 40 of a-z, 0-9 and '-', first a letter, last no '-'",
    "credit",
)
"""Names of inference services: of objects they are the beginning, with at most 63 in all."""
PIPELINE: Final = TextRule(
    r"^[a-z]([a-z0-9-]{0,26}[a-z0-9])?$",
    "1 to 28 of a-z, 0-9 and '-', first a letter, last no '-'",
    "credit",
)
"""Names of pipelines: with a run's number, and what Kubernetes adds to names of pods, at most 63
characters."""
#: Sizes of a model's package, in MiB, that volumes for it are made for.
PACKAGE_MIB: Final = Between(1, 2**20)
DEFAULT_PACKAGE_MIB: Final = 1_024
PORT: Final = Between(1, 65_535)
#: As both clouds and Entra write them: https://www.rfc-editor.org/rfc/rfc9562#section-4
UUID: Final = TextRule(
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    "a UUID in small letters",
    "01234567-89ab-cdef-0123-456789abcdef",
)
#: The fields of https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/: numbers,
#: lists, ranges, steps, and names of months and days.
SCHEDULE: Final = TextRule(
    r"^[0-9A-Za-z*/,?-]+(?: +[0-9A-Za-z*/,?-]+){4}$",
    "five fields of cron: minute, hour, day, month and day of the week",
    "0 22 * * *",
)
HTTPS: Final = TextRule(
    r"^https://.*$", "an address that starts with https://", "https://store.example.ae"
)
#: https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests
DIGEST: Final = TextRule(
    r"^sha256:[0-9a-f]{64}$",
    "a digest: sha256: and 64 hexadecimal digits",
    "sha256:" + "0" * 64,
)
#: A site is the value of a node label: one word, so that no region abroad is taken for one.
SITE: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$",
    "the site's name: up to 40 lower-case letters, digits and '-'",
    "abudhabi-dc1",
)
#: Host, port and path of a registry: github.com/distribution/reference, in lower case.
REGISTRY: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*(?::\d{1,5})?"
    r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$",
    "a host in lower case, with port and path where it has them",
    "registry.example.ae/falaj",
)


# Which minor versions of Kubernetes a cluster and its pools may have.

DEFAULT_KUBERNETES_VERSION = "1.35"
#: What both clouds' supported-version tables and the platform's charts have in common: 1.34 is the
#: first with `resource.k8s.io/v1`, 1.36 the newest that AKS lists as generally available
#: (learn.microsoft.com/azure/aks/supported-kubernetes-versions, June 2026).
KUBERNETES_VERSIONS = OneOf(("1.34", "1.35", "1.36"))
