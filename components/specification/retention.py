"""How long logs can be kept where they are searched."""

from __future__ import annotations

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import Between, OneOf

#: What a CloudWatch log group takes: https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/
#: APIReference/API_PutRetentionPolicy.html
_AWS_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
#: What a Log Analytics workspace keeps for interactive use:
#: https://learn.microsoft.com/azure/azure-monitor/logs/data-retention-configure
_AZURE_DAYS = range(30, 731)
#: What one of the clouds takes at least.
LOG_DAYS = Between(min(_AWS_DAYS[0], _AZURE_DAYS[0]), max(_AWS_DAYS[-1], _AZURE_DAYS[-1]))


def log_days(cloud: str, argument: str, value: object, errors: ArgumentErrors) -> int:
    """Days of retention that the cloud's log store takes; what was given where it was refused."""
    allowed = _AWS_DAYS if cloud == "aws" else _AZURE_DAYS
    days = errors.whole(argument, value, allowed[0], allowed[-1])
    if days not in allowed:
        near = next(each for each in allowed if each >= days)
        errors.add(
            argument, value, ", ".join(map(str, allowed)), f"{near} is the next longer",
            limit=OneOf((near,)),
        )  # fmt: skip
    return days
