"""Ids and ARNs for the types that aren't described one by one."""

from __future__ import annotations

import re
from typing import Final

from falaj.sandbox.clouds.aws.arns import arn_of
from falaj.sandbox.clouds.aws.hashes import marked
from falaj.sandbox.clouds.aws.sdk import shape
from falaj.sandbox.clouds.inputs import Inputs

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
