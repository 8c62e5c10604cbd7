"""How AWS makes ids, ARNs and names, the same in each run."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind
from falaj.sandbox.clouds.aws.regions import dns_suffix, partition_of, region_of
from falaj.sandbox.clouds.aws.sdk import Shape, shape
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Properties

MARK = "0000"
"""How every EC2-style id of the sandbox begins, so that it can't be taken for a real one."""


def hexdigits(count: int, *seeds: str) -> str:
    """`count` hexadecimal digits (at most 64) that depend on the seeds alone."""
    return hashlib.sha256("\0".join(seeds).encode()).hexdigest()[:count]


def marked(count: int, *seeds: str) -> str:
    """Hexadecimal digits that begin with the sandbox's mark."""
    return MARK + hexdigits(count - len(MARK), *seeds)


def letters(count: int, *seeds: str) -> str:
    """`count` characters of A-Z and 0-9, as in the ids of IAM and Route 53."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    digest = hashlib.sha512("\0".join(seeds).encode()).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:count])


def digits(count: int, *seeds: str) -> str:
    """`count` decimal digits, the first one not zero."""
    number = str(int(hexdigits(64, *seeds), 16))
    return ("1" + number)[:count]


def uuid(*seeds: str) -> str:
    """A UUID-shaped id that begins with the sandbox's mark."""
    text = marked(32, *seeds)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


ACCOUNT: Final = "000000000000"
"""The sandbox's account: twelve digits as AWS has them, and nobody's."""


def partition(inputs: Inputs) -> str:
    """``aws``, ``aws-cn`` and so on, by the region."""
    return partition_of(region_of(inputs))


def arn_of(
    inputs: Inputs, service: str, resource: str, *, regional: bool = True, owned: bool = True
) -> str:
    """The ARN of something in the sandbox's account."""
    region = region_of(inputs) if regional else ""
    account = ACCOUNT if owned else ""
    return f"arn:{partition(inputs)}:{service}:{region}:{account}:{resource}"


_FIELD: Final = re.compile(r"\{(\w+)\}")
_COUNTED: Final = re.compile(r"(hex|letters|digits)(\d+)")


class MissingError(Exception):
    """A template names an input that is absent or unknown."""


def fill(template: str, inputs: Inputs, *, id: str = "", seed: str = "") -> str:
    """The template with its fields replaced.

    Raises:
        MissingError: a field names an input that is absent or not known yet.
    """
    return _FIELD.sub(lambda field: _value(field[1], inputs, id, seed), template)


def _value(name: str, inputs: Inputs, id: str, seed: str) -> str:
    places = {
        "id": id,
        "account": ACCOUNT,
        "region": region_of(inputs),
        "partition": partition(inputs),
        "suffix": dns_suffix(region_of(inputs)),
    }
    if name in places:
        return places[name]
    if name == "uuid":
        return uuid(seed)
    counted = _COUNTED.fullmatch(name)
    if counted is not None:
        count = int(counted[2])
        return {"hex": marked, "letters": letters, "digits": digits}[counted[1]](count, seed)
    value = inputs.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MissingError(name)
    return str(value)


_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SERVICES: Final = {
    "alb": "elasticloadbalancing",
    "lb": "elasticloadbalancing",
    "elb": "elasticloadbalancing",
    "efs": "elasticfilesystem",
    "cloudwatch": "logs",
    "ebs": "ec2",
    "vpc": "ec2",
    "networkfirewall": "network-firewall",
    "acmpca": "acm-pca",
    "cfg": "config",
    "cognito": "cognito-idp",
    "ec2transitgateway": "ec2",
    "apigatewayv2": "apigateway",
    "msk": "kafka",
    "mwaa": "airflow",
    "amp": "aps",
    "opensearch": "es",
    "costexplorer": "ce",
    "sfn": "states",
}


def generic_id(inputs: Inputs, name: str, urn: str) -> str:
    """The given name where the type has one, else the resource's with digits of its own."""
    given = inputs.string("name")
    if given:
        return given
    return f"{name}-{marked(17, inputs.token, urn)}"


def generic_arn(inputs: Inputs, id: str) -> str:
    """``arn:aws:service:region:account:type/id``, without a region for what has none."""
    module, class_name = _parts(inputs.token)
    known = shape(inputs.token)
    regional = known is None or known.regional
    return arn_of(inputs, _SERVICES.get(module, module), f"{class_name}/{id}", regional=regional)


def _parts(token: str) -> tuple[str, str]:
    pieces = token.split(":")
    module = pieces[1].split("/", 1)[0] if len(pieces) > 1 else token
    return module, _WORDS.sub("-", pieces[-1]).lower()


SUFFIX = 7


def automatic_name(
    kind: AwsKind | None, shape: Shape | None, name: str, inputs: Properties, urn: str
) -> dict[str, str]:
    """The made-up name, by its property; nothing where one was given or none is needed."""
    rule = kind.name if kind is not None and kind.name is not None else AutoName()
    if shape is None or rule.property not in shape.inputs or rule.property in shape.required:
        return {}
    if any(inputs.get(key) is not None for key in (rule.property, *rule.unless)):
        return {}
    return {rule.property: compose(rule, name, urn)}


def compose(rule: AutoName, name: str, urn: str) -> str:
    """The name that a resource gets when none is given."""
    ending = rule.separator + hexdigits(SUFFIX, urn, "name")
    stem = name[: max(rule.longest - len(rule.prefix) - len(ending), 0)]
    full = rule.prefix + stem + ending
    return full.lower() if rule.lower else full
