"""What the settings of the packs may be: the packs themselves, and the form of each value.

A stack's file has the same; a stack's program loads this of the policies, and no rule.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from falaj.components.catalogue.host_form import HOST_PATTERN

PackName = Literal["residency", "encryption", "zero_trust", "kubernetes", "governance"]
PACKS: Final[tuple[PackName, ...]] = get_args(PackName)

Site = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="a site's name: up to 40 lower-case letters, digits and '-', "
        "not at either end",
        examples=["abudhabi-dc1"],
    ),
]
Host = Annotated[
    str,
    Field(
        pattern=HOST_PATTERN,
        description="a host in lower case, or '*.' and a host for all below it, with port and "
        "path where it has them",
        examples=["models.example.ae"],
    ),
]

#: An account that may be shared with: of AWS, an owner of S3, a subscription or tenant of Azure.
Account = Annotated[
    str,
    Field(
        pattern=r"^([0-9]{12}|[0-9a-f]{64}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$",
        description="an AWS account's 12 digits in quotes, an S3 owner's canonical id, or the id "
        "of an Azure subscription or tenant",
        examples=["123456789012"],
    ),
]
ServiceType = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9-]*:[\w./*-]+(:[\w./*-]+)?$",
        description="a type of resources, where '*' after the package stands for any text",
        examples=["acmedns:index/record:Record"],
    ),
]
Reason = Annotated[str, Field(min_length=1)]
GeoRedundancy = Literal["forbidden", "paired"]
MostMachines = Annotated[int, Field(ge=0)]
File = Annotated[str, Field(min_length=1)]
