import pulumi

__all__ = ["Thing", "ThingArgs"]


@pulumi.input_type
class ThingArgs:
    def __init__(self, *, size: pulumi.Input[int], label: pulumi.Input[str] | None = None) -> None:
        pulumi.set(self, "size", size)
        pulumi.set(self, "label", label)

    @property
    @pulumi.getter
    def size(self) -> pulumi.Input[int]:
        return pulumi.get(self, "size")

    @property
    @pulumi.getter
    def label(self) -> pulumi.Input[str] | None:
        return pulumi.get(self, "label")


class Thing(pulumi.CustomResource):
    def __init__(
        self, name: str, size: int, label: str = "", opts: pulumi.ResourceOptions | None = None
    ) -> None:
        own = pulumi.ResourceOptions(version="1.2.3")
        given = {"size": size, "label": label, "endpoint": None}
        super().__init__(
            "acme:index/thing:Thing", name, given, pulumi.ResourceOptions.merge(own, opts)
        )

    @property
    @pulumi.getter
    def size(self) -> pulumi.Output[int]:
        return pulumi.get(self, "size")

    @property
    @pulumi.getter
    def label(self) -> pulumi.Output[str | None]:
        return pulumi.get(self, "label")

    @property
    @pulumi.getter
    def endpoint(self) -> pulumi.Output[str]:
        return pulumi.get(self, "endpoint")
