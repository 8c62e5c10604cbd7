"""Machine images, by search or by the public parameters that name the newest."""

from __future__ import annotations

import re
from typing import Any, Final

from falaj.sandbox.clouds.aws.naming import marked, partition, region_of
from falaj.sandbox.clouds.inputs import Inputs, as_list
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import World

_PARAMETER: Final = "aws:ssm/parameter:Parameter"
_ARM: Final = re.compile(r"arm64|aarch64")


def image_id(region: str, name: str) -> str:
    """The id of the image that a name stands for in a region."""
    return "ami-" + marked(17, region, name)


def _parameter(inputs: Inputs, world: World) -> dict[str, Any]:
    """A public parameter of AWS holds an image's id; others have to exist."""
    name = inputs.string("name")
    if name.startswith("/aws/service/"):
        if re.search(r"(image_id|image-id|/ami-|ami_id|recommended)", name) is None:
            value, kind = "sandbox", "String"
        else:
            value, kind = image_id(region_of(inputs), name), "String"
        arn = f"arn:{partition(inputs)}:ssm:{region_of(inputs)}::parameter{name}"
        return {"arn": arn, "id": name, "type": kind, "value": value, "insecureValue": value,
                "version": 1}  # fmt: skip
    for made in world.find(_PARAMETER, name=name):
        value = made.outputs.get("value") or made.outputs.get("insecureValue") or ""
        return {**made.outputs, "id": name, "value": value, "insecureValue": value}
    raise LookupError(f"ParameterNotFound: the sandbox has no parameter {name!r}")


def _image(inputs: Inputs, _world: World) -> dict[str, Any]:
    """The newest image that fits: always one, as AWS's catalogue isn't known here."""
    wanted: list[str] = []
    for _, item in inputs.each("filters[]"):
        entry = dict(item) if isinstance(item, dict) else {}
        wanted.append(f"{entry.get('name')}={','.join(map(str, as_list(entry.get('values'))))}")
    name = "|".join([*sorted(wanted), inputs.string("nameRegex")])
    owner = inputs.string("owners[]") or "amazon"
    found = image_id(region_of(inputs), f"{owner}|{name}")
    return {
        "id": found,
        "imageId": found,
        "arn": f"arn:{partition(inputs)}:ec2:{region_of(inputs)}::image/{found}",
        "name": "sandbox-image",
        "architecture": "arm64" if _ARM.search(name) else "x86_64",
        "ownerId": owner if owner.isdigit() else "000000000000",
        "rootDeviceName": "/dev/xvda",
        "rootDeviceType": "ebs",
        "virtualizationType": "hvm",
        "state": "available",
        "creationDate": "2026-01-01T00:00:00.000Z",
    }


ANSWERS: Final[Answers] = {
    "aws:ssm/getParameter:getParameter": _parameter,
    "aws:ec2/getAmi:getAmi": _image,
}
