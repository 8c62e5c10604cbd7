import pulumi

__all__ = ["GetZoneResult", "get_zone"]


@pulumi.output_type
class GetZoneResult:
    def __init__(self, name: str, servers: list[str]) -> None:
        pulumi.set(self, "name", name)
        pulumi.set(self, "servers", servers)

    @property
    @pulumi.getter
    def name(self) -> str:
        return pulumi.get(self, "name")

    @property
    @pulumi.getter
    def servers(self) -> list[str]:
        return pulumi.get(self, "servers")


def get_zone(name: str) -> GetZoneResult:
    __args__ = {}
    __args__['name'] = name  # fmt: skip
    opts = pulumi.InvokeOptions(version="1.2.3")
    return pulumi.runtime.invoke('acme:index/getZone:getZone', __args__, opts=opts, typ=GetZoneResult).value  # fmt: skip # noqa: E501
