"""SDKs of before, which programs of others still ask for."""

from __future__ import annotations

import pytest

from falaj.sandbox.clouds.azure import resources

#: The form of azure-native 2.x, in which no class is marked with its token.
FORMER = """
class TableArgs:
    @property
    @pulumi.getter(name="resourceGroupName")
    def resource_group_name(self) -> pulumi.Input[str]:
        return pulumi.get(self, "resource_group_name")

    @property
    @pulumi.getter
    def location(self) -> Optional[pulumi.Input[str]]:
        return pulumi.get(self, "location")


class Table(pulumi.CustomResource):
    \"\"\"
    Azure REST API version: 2022-09-01. Prior API version in Azure Native 1.x: 2020-01-01.
    \"\"\"
    @property
    @pulumi.getter
    def etag(self) -> pulumi.Output[str]:
        return pulumi.get(self, "etag")
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (FORMER, "2022-09-01"),
        (
            FORMER.replace(
                "class Table(", '@pulumi.type_token("azure-native:a:Table")\nclass Table('
            )
            .replace("-> Optional[pulumi.Input[str]]", "-> pulumi.Input[Optional[str]]")
            .replace("Azure REST API version:", "Uses Azure REST API version"),
            "2022-09-01",
        ),
    ],
)
def test_types_of_a_former_sdk_are_read(
    text: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_source", lambda token: text)
    found = resources.shape.__wrapped__("azure-native:a:Table")
    assert found is not None
    assert found.inputs == {"resourceGroupName", "location"}
    assert found.required == {"resourceGroupName"}
    assert found.outputs == {"etag"}
    assert found.api_version == version
