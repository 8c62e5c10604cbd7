"""EBS: what encrypts volumes, their copies, and the disks that instances are started with.

A volume that says nothing isn't encrypted, unless the account encrypts every volume by default;
one that names no key takes the account's default key:
https://docs.aws.amazon.com/ebs/latest/userguide/encryption-by-default.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, View, get, is_true, is_unknown, select, text
from falaj.policies.reading.place import region_said
from falaj.policies.rules.encryption.table import Part, Reader, Stores, read_key

_EVERY_VOLUME: Final = "aws:ebs/encryptionByDefault:EncryptionByDefault"
_DEFAULT_KEY: Final = "aws:ebs/defaultKmsKey:DefaultKmsKey"
_AMI_COPY: Final = "aws:ec2/amiCopy:AmiCopy"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_BATCH: Final = "aws:batch/computeEnvironment:ComputeEnvironment"
#: Batch's kinds of machines in one's own account; Fargate's are AWS's, unmanaged ones elsewhere.
_OWN: Final = ("EC2", "SPOT")
_ROOT: Final = "rootBlockDevice"


def _volume(
    type: str, at: str = "", copies: tuple[str, ...] = (), key: str = "kmsKeyId"
) -> Stores:
    return Stores(type, key, "encrypted", "none", parts=at, copies=copies)


#: Blocks that are volumes; absent ones are none.
VOLUMES: Final = (
    _volume("aws:ebs/volume:Volume", copies=("snapshotId",)),
    _volume("aws:ebs/snapshotCopy:SnapshotCopy", copies=("sourceSnapshotId",)),
    _volume("aws:ebs/snapshotImport:SnapshotImport"),
    _volume(_AMI_COPY, copies=("sourceAmiId",)),
    _volume("aws:ec2/ami:Ami", "ebsBlockDevices", ("snapshotId",), key=""),
    _volume("aws:ec2/instance:Instance", _ROOT),
    _volume("aws:ec2/instance:Instance", "ebsBlockDevices", ("snapshotId",)),
    _volume("aws:ec2/spotInstanceRequest:SpotInstanceRequest", _ROOT),
    _volume("aws:ec2/spotInstanceRequest:SpotInstanceRequest", "ebsBlockDevices", ("snapshotId",)),
    _volume("aws:ec2/spotFleetRequest:SpotFleetRequest", "launchSpecifications.rootBlockDevices"),
    _volume("aws:ec2/spotFleetRequest:SpotFleetRequest", "launchSpecifications.ebsBlockDevices",
            ("snapshotId",)),
    _volume("aws:ec2/launchConfiguration:LaunchConfiguration", _ROOT, key=""),
    _volume("aws:ec2/launchConfiguration:LaunchConfiguration", "ebsBlockDevices", ("snapshotId",),
            key=""),
    _volume(_TEMPLATE, "blockDeviceMappings.ebs", ("snapshotId",)),
    _volume("aws:imagebuilder/imageRecipe:ImageRecipe", "blockDeviceMappings.ebs",
            ("snapshotId",)),
    _volume("aws:imagebuilder/containerRecipe:ContainerRecipe",
            "instanceConfiguration.blockDeviceMappings.ebs", ("snapshotId",)),
    _volume("aws:dlm/lifecyclePolicy:LifecyclePolicy",
            "policyDetails.schedules.crossRegionCopyRules", key="cmkArn"),
    _volume("aws:dlm/lifecyclePolicy:LifecyclePolicy",
            "policyDetails.action.crossRegionCopies.encryptionConfiguration", key="cmkArn"),
)  # fmt: skip

#: Types that start machines: without these blocks, the disk is as the image has it. The paths of
#: the block, of the image, and of a launch template that may say more.
_ROOTS: Final = {
    "aws:ec2/instance:Instance": (_ROOT, "ami", "launchTemplate"),
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": (_ROOT, "ami", "launchTemplate"),
    "aws:ec2/launchConfiguration:LaunchConfiguration": (_ROOT, "imageId", ""),
    _TEMPLATE: ("blockDeviceMappings", "imageId", ""),
    "aws:eks/nodeGroup:NodeGroup": ("launchTemplate", "", "launchTemplate"),
    _BATCH: (
        "computeResources.launchTemplate",
        "computeResources.ec2Configurations.imageIdOverride",
        "computeResources.launchTemplate",
    ),
}


def _root(resource: Resource, view: View) -> Iterator[Part]:
    """The disk that a machine is started from, where no block says how it is encrypted."""
    path, image, template = _ROOTS[resource.kind]
    batch = get(resource.properties, "computeResources.type")
    if resource.kind == _BATCH and not is_unknown(batch) and text(batch).upper() not in _OWN:
        return
    ebs = f"{path}.ebs" if resource.kind == _TEMPLATE else path
    if path != template and any(True for _ in select(resource.properties, ebs)):
        return
    if template and get(resource.properties, template) is not ABSENT:
        # A template of this stack is judged by itself.
        if not any(each.kind == _TEMPLATE for each in view.referred(resource, template)) and (
            not _names_template(resource, view, template)
        ):
            why = f"{template} isn't of this stack, so nobody sees what encrypts its volumes"
            yield Part("unknown", path, path, why, given=False)
        return
    if image and any(each.kind == _AMI_COPY for each in view.referred(resource, image)):
        return
    why = f"{path} isn't given, and by default a machine's disk isn't encrypted"
    yield Part("none", path, path, why, given=False)


def _names_template(resource: Resource, view: View, path: str) -> bool:
    given = get(resource.properties, path)
    return any(
        each.kind == _TEMPLATE
        for key in ("id", "name", "launchTemplateId", "launchTemplateName")
        for each in view.referred(resource, f"{path}.{key}")
        if get(given, key) is not ABSENT
    )


def _by_account(resource: Resource, part: Part, view: View) -> Part:
    """A part that the resource leaves open, as the account's defaults in the stack settle it."""
    if part.given or part.state not in {"none", "service key"}:
        return part
    if view.stack is None:
        why = f"{part.why}, unless the account encrypts volumes by default"
        return replace(part, state="unknown", why=why, surely=part.state == "service key")
    here = region_said(resource)

    def nearby(kind: str) -> list[Resource]:
        found = view.stack.of_kind(kind) if view.stack else []
        return [each for each in found if _same(region_said(each), here)]

    on = [get(each.properties, "enabled") for each in nearby(_EVERY_VOLUME)]
    if part.state == "none" and not any(is_true(each) or each is ABSENT for each in on):
        hidden = any(is_unknown(each) for each in on)
        return replace(part, state="unknown") if hidden else part
    for each in nearby(_DEFAULT_KEY):
        state, why = read_key(each, "keyArn", get(each.properties, "keyArn"), view)
        if state != "absent":
            return replace(part, state=state, why=f"the account's {why}", surely=True)
    if part.state == "service key":
        return part
    why = "the account encrypts volumes by default, with the key that the service manages"
    return replace(part, state="service key", why=why)


def _same(one: Any, other: Any) -> bool:
    """Whether two regions may be one: they are unless both are known and differ."""
    return not text(one) or not text(other) or text(one) == text(other)


def _read(entries: tuple[Stores, ...]) -> Reader:
    def read(resource: Resource, view: View) -> Iterator[Part]:
        for entry in entries:
            for part in entry.read(resource, view):
                yield _by_account(resource, part, view)
        if resource.kind in _ROOTS:
            for part in _root(resource, view):
                yield _by_account(resource, part, view)

    return read


#: The account's own defaults.
DEFAULTS: Final = (
    Stores(_EVERY_VOLUME, "", "enabled"),
    Stores(_DEFAULT_KEY, "keyArn"),
)
#: Types that have no block of their own, only a disk that their image describes.
MACHINES: Final = frozenset(_ROOTS) - {each.type for each in VOLUMES}
_TYPES: Final = tuple(dict.fromkeys([*(each.type for each in VOLUMES), *_ROOTS]))
READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **{each: (_read(tuple(one for one in VOLUMES if one.type == each)),) for each in _TYPES},
    **{each.type: (each.read,) for each in DEFAULTS},
}
