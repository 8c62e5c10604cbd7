"""What a tenant may spend in a month, and who is told."""

from datetime import UTC, datetime

import pulumi
from pulumi_azure_native import consumption

from falaj.components.azure._component import client_of, component_options, titled
from falaj.components.catalogue.tag_names import tag_name
from falaj.components.specification.budget import BudgetArgs, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Budget", "BudgetArgs"]

_FORECAST_PERCENT = 100


class Budget(pulumi.ComponentResource):
    """A limit for what the tenant's resources cost in a month, with alerts.

    Counts everything in the subscription that has the tenant's tag ``falaj-tenant``. People are
    told at shares of the limit, and when Azure expects the month to pass it; nothing is stopped.

    Azure counts in the currency of the billing account, which for customers in the country is
    often the dirham: the number is taken as it is. Write ``monthly_usd`` in that currency then (1
    US dollar is 3.6725 dirhams).

    Example:
        ``Budget("budget", {"region": "uaenorth", "tenant": "bank", "owner": "it@bank.ae",
        "data_class": "internal", "cost_center": "42", "monthly_usd": 20000, "emails":
        ["finance@bank.ae"]}, opts)``

    Makes: a budget of the subscription.
    """

    budget_id: pulumi.Output[str]
    """Id of the budget."""

    def __init__(
        self, name: str, args: BudgetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:Budget", name, engine_inputs(args), component_options(opts)
        )
        client = client_of(self)
        month = spec.start or datetime.now(UTC).strftime("%Y-%m")
        emails = list(spec.emails)
        alerts = {
            f"actual-{percent}": (percent, consumption.ThresholdType.ACTUAL)
            for percent in spec.alert_percent
        }
        alerts["forecast"] = (_FORECAST_PERCENT, consumption.ThresholdType.FORECASTED)
        budget = consumption.Budget(
            f"{name}-budget",
            budget_name=titled(spec.placed, name),
            scope=pulumi.Output.concat("/subscriptions/", client.subscription_id),
            category=consumption.CategoryType.COST,
            amount=spec.monthly_usd,
            time_grain=consumption.TimeGrainType.MONTHLY,
            time_period=consumption.BudgetTimePeriodArgs(start_date=f"{month}-01T00:00:00Z"),
            filter=consumption.BudgetFilterArgs(
                tags=consumption.BudgetComparisonExpressionArgs(
                    name=tag_name("azure", "tenant"),
                    operator=consumption.BudgetOperatorType.IN_,
                    values=[spec.placed.tenant],
                )
            ),
            notifications={
                title: consumption.NotificationArgs(
                    enabled=True,
                    operator=consumption.OperatorType.GREATER_THAN_OR_EQUAL_TO,
                    threshold=percent,
                    threshold_type=kind,
                    contact_emails=emails,
                )
                for title, (percent, kind) in alerts.items()
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                # The month in which it was made stays; Azure gives it an end of its own besides.
                ignore_changes=[] if spec.start else ["timePeriod"],
            ),
        )
        self.budget_id = budget.id
        self.register_outputs({"budgetId": self.budget_id})
