"""The monthly budget of a tenant on AWS."""

from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, named, token, written
from falaj.components.specification.budget import BudgetArgs, BudgetSpec, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Budget", "BudgetArgs"]


class Budget(pulumi.ComponentResource):
    """A monthly limit on what the tenant's resources cost, and who is told.

    ::

        budget = Budget("month", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "internal", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "monthly_usd": 20000, "emails": ["finance@acme.example"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes a `budgets.Budget` over everything with the tag ``falaj:tenant``, which tells ``emails``
    when the cost passes each of ``alert_percent`` and when the forecast passes the limit. AWS
    counts by a tag only after it was activated as a cost allocation tag, once for the
    organisation. Budgets only tell: nothing is stopped.
    """

    budget_id: pulumi.Output[str]
    """Account and name: ``000000000000:<name>``."""

    def __init__(
        self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("Budget"), name, engine_inputs(args), opts)
        budget = aws.budgets.Budget(
            name,
            name=named(spec.placed, name, limit=100),
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{spec.monthly_usd:.2f}",
            limit_unit="USD",
            cost_filters=[
                {"name": "TagKeyValue", "values": [f"user:falaj:tenant${spec.placed.tenant}"]}
            ],
            time_period_start=f"{spec.start}-01_00:00" if spec.start else None,
            notifications=_notifications(spec),
            tags=spec.placed.tags(name),
            opts=child(self),
        )
        self.budget_id = budget.id
        self.register_outputs(written({"budget_id": self.budget_id}))


def _notifications(spec: BudgetSpec) -> list[Any]:
    actual = [("ACTUAL", percent) for percent in spec.alert_percent]
    return [
        {
            "comparison_operator": "GREATER_THAN",
            "notification_type": kind,
            "threshold": percent,
            "threshold_type": "PERCENTAGE",
            "subscriber_email_addresses": list(spec.emails),
        }
        for kind, percent in (*actual, ("FORECASTED", 100))
    ]
