"""Resource groups, budgets and Defender's plans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import all_of, equals, given, one_of, refused, when
from falaj.sandbox.clouds.model import Problem
from falaj.wire.documents import is_dictionary

_BUDGET: Final = kinds.NameRule(
    1, 63, r"[-A-Za-z0-9_]+", "letters, digits, underscores and hyphens"
)
# Source: Microsoft Defender for Cloud REST API (pricings): names of plans.
_PLANS: Final = (
    "Api", "AppServices", "Arm", "CloudPosture", "Containers", "CosmosDbs", "Dns", "KeyVaults",
    "OpenSourceRelationalDatabases", "SqlServers", "SqlServerVirtualMachines", "StorageAccounts",
    "VirtualMachines", "AI", "Discovery", "FoundationalCspm",
)  # fmt: skip


#: learn.microsoft.com/rest/api/defenderforcloud-composite/pricings (subPlan), November 2026: of
#: plans that have several.
_SUB_PLANS: Final = {
    "VirtualMachines": ("P1", "P2"),
    "StorageAccounts": ("DefenderForStorageV2", "PerStorageAccount", "PerTransaction"),
    "KeyVaults": ("PerKeyVault", "PerTransaction"),
    "Arm": ("PerApiCall", "PerSubscription"),
}


def _day(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None


def _budget_problems(inputs: Inputs) -> Iterator[Problem]:
    amount = inputs.number("amount")
    if amount is not None and amount <= 0:
        yield Problem("amount", f"{amount:g} isn't allowed; a budget is more than 0")
    given = {
        name: inputs.optional_string(f"timePeriod.{name}") for name in ("startDate", "endDate")
    }
    days = {name: _day(text) if text else None for name, text in given.items()}
    for name, text in given.items():
        if text and days[name] is None:
            yield Problem(
                f"timePeriod.{name}", f"{text!r} isn't a date such as 2026-12-01T00:00:00Z"
            )
    start, end = days["startDate"], days["endDate"]
    # Source: rest/api/consumption/budgets: the first of a month, from June 2017 on.
    if start is not None and start.day != 1:
        yield Problem(
            "timePeriod.startDate",
            f"{start} isn't the first day of a month; choose {start.replace(day=1)}",
        )
    if start is not None and start < date(2017, 6, 1):
        yield Problem("timePeriod.startDate", f"{start} is before June 2017")
    if start is not None and end is not None and end <= start:
        yield Problem("timePeriod.endDate", f"{end} isn't after the start {start}")
    if len(inputs.keys("notifications")) > 5:
        yield Problem(
            "notifications",
            f"{len(inputs.keys('notifications'))} are given; at most 5 are allowed",
        )
    for key in inputs.keys("notifications"):
        yield from _notification(inputs, key)


def _notification(inputs: Inputs, key: str) -> Iterator[Problem]:
    notifications = inputs.at("notifications")
    inner = notifications.get(key)
    where = f"notifications.{key}"
    if not is_dictionary(inner):
        return
    one = Inputs(inner)
    share = one.number("threshold")
    if share is not None and not 0 < share <= 1000:
        yield Problem(
            f"{where}.threshold",
            f"{share:g} isn't allowed; allowed is a share of more than 0 to 1000 percent",
        )
    people = ("contactEmails", "contactRoles", "contactGroups")
    if all(one.is_absent(f"{name}[0]") for name in people):
        yield Problem(
            f"{where}.contactEmails",
            "is missing: name whom to tell, by mail, role or action group",
        )
    if len(one.items("contactEmails")) > 50:
        yield Problem(f"{where}.contactEmails", "names more than 50, which is the most")
    for path, text in one.strings("contactEmails"):
        if "@" not in text:
            yield Problem(f"{where}.{path}", f"{text!r} isn't an e-mail address")
    for path, text in one.strings("contactGroups"):
        for problem in checks.resource_id(path, text, "Microsoft.Insights/actionGroups"):
            yield Problem(f"{where}.{problem.path}", problem.reason)


def _budget_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"currentSpend": {"amount": 0, "unit": "USD"}}


def _pricing_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"freeTrialRemainingTime": "PT0S", "deprecated": False, "inherited": "False"}


def _plan_stays(plan: Resource) -> Iterator[Problem]:
    """A subscription's plans are there for good; those of single resources can be deleted.

    Source: github.com/Azure/terraform-provider-azapi/issues/818 (400 InvalidUrlConfiguration).
    """
    scope = plan.id.partition("/providers/")[0]
    if len(scope.strip("/").split("/")) == len(("subscriptions", "id")):
        yield Problem(
            "",
            "InvalidUrlConfiguration: Azure deletes no plan of a subscription; declare it with "
            "retain_on_delete, and set pricingTier to Free to switch it off",
        )


def _hsm_key_is_fixed(key: Resource) -> Iterator[Problem]:
    """Source: …/managed-hsm-keys/create-if-not-exist: a key that exists is answered as it is."""
    made = resources.by_id(key.world, key.id)
    reference = naming.parse(key.id)
    if made is None or reference is None:
        return
    if reference.type.lower() != "microsoft.keyvault/managedhsms/keys":
        return
    for path in ("tags", "properties"):
        if made.inputs.get(path) != key.at(path):
            yield Problem(
                path,
                "Resource Manager changes no key of a managed HSM that exists; name it in "
                "ignore_changes, and change it at the module's own address",
            )


def _hsm_key_stays(resource: Resource) -> Iterator[Problem]:
    """Source: learn.microsoft.com/rest/api/keyvault/managedhsm/managed-hsm-keys: no delete."""
    reference = naming.parse(resource.id)
    if reference and reference.type.lower() == "microsoft.keyvault/managedhsms/keys":
        yield Problem(
            "",
            "Resource Manager deletes no key of a managed HSM; declare it with retain_on_delete: "
            "it goes with its HSM",
        )


def _outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {
        "type": "Microsoft.Resources/resourceGroups",
        "properties": {"provisioningState": "Succeeded"},
    }


def _resource_outputs(resource: Resource) -> dict[str, Any]:
    """What a resource of any type answers; keys of a managed HSM are made by it."""
    reference = naming.parse(resource.id)
    given = resource.at("properties")
    found: dict[str, Any] = {"type": reference.type if reference else ""}
    if reference and reference.type.lower() == "microsoft.keyvault/managedhsms/keys":
        uri = f"https://{reference.names[0].lower()}.managedhsm.azure.net/keys/{reference.name}"
        version = naming.digest(32, "version", reference.id)
        found["properties"] = {
            **(given if is_dictionary(given) else {}),
            "keyUri": uri,
            "keyUriWithVersion": f"{uri}/{version}",
        }
    return found


KINDS: Final = (
    AzureKind(
        "azure-native:security:SecurityContact",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Security/securityContacts/"
        "{securityContactName}",
        name=kinds.only("default"),
        is_always_there=True,
    ),
    AzureKind(
        "azure-native:consumption:Budget",
        "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
        name=_BUDGET,
        replaces=("timeGrain", "timePeriod.startDate"),
        rules=(_budget_problems,),
        computed=_budget_outputs,
    ),
    AzureKind(
        "azure-native:costmanagement:Budget",
        "{scope}/providers/Microsoft.CostManagement/budgets/{budgetName}",
        name=_BUDGET,
        replaces=("timeGrain", "timePeriod.startDate"),
        rules=(_budget_problems,),
        computed=_budget_outputs,
    ),
    AzureKind(
        "azure-native:security:Pricing",
        "{scopeId}/providers/Microsoft.Security/pricings/{pricingName}",
        is_always_there=True,
        rules=(
            one_of("pricingName", _PLANS),
            *(
                when(equals("pricingName", plan), one_of("subPlan", allowed))
                for plan, allowed in _SUB_PLANS.items()
            ),
            refused(
                "subPlan", "the plan for containers has no sub-plan; leave it out",
                all_of(given("subPlan"), equals("pricingName", "Containers")),
            ),
            refused(
                "subPlan", "goes with pricingTier Standard only",
                all_of(given("subPlan"), equals("pricingTier", "Free")),
            ),
        ),
        delete_blockers=(_plan_stays,),
        computed=_pricing_outputs,
    ),
    AzureKind(
        "azure-native:resources:Resource",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
        "{resourceProviderNamespace}/{parentResourcePath}/{resourceType}/{resourceName}",
        location="any",
        crosschecks=(_hsm_key_is_fixed,),
        delete_blockers=(_hsm_key_stays,),
        computed=_resource_outputs,
    ),
    AzureKind(
        "azure-native:resources:ResourceGroup",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
        name=kinds.GROUP,
        autoname="random",
        computed=_outputs,
    ),
)  # fmt: skip
