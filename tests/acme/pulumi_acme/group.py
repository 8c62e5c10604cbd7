import pulumi

__all__ = ["Group", "GroupArgs"]


@pulumi.input_type
class GroupArgs:
    def __init__(self, *, members: pulumi.Input[int]) -> None:
        pulumi.set(self, "members", members)

    @property
    @pulumi.getter
    def members(self) -> pulumi.Input[int]:
        return pulumi.get(self, "members")


class Group(pulumi.ComponentResource):
    def __init__(self, name: str, members: int) -> None:
        super().__init__(
            "acme:index/group:Group",
            name,
            {"members": members, "address": None},
            pulumi.ResourceOptions(version="1.2.3"),
            remote=True,
        )

    @property
    @pulumi.getter
    def address(self) -> pulumi.Output[str]:
        return pulumi.get(self, "address")
