import pulumi

__all__ = ["Provider", "ProviderArgs"]


@pulumi.input_type
class ProviderArgs:
    def __init__(self, *, account: pulumi.Input[str] | None = None) -> None:
        pulumi.set(self, "account", account)

    @property
    @pulumi.getter
    def account(self) -> pulumi.Input[str] | None:
        return pulumi.get(self, "account")


class Provider(pulumi.ProviderResource):
    pass
