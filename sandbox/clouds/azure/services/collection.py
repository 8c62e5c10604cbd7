"""Microsoft.Insights and Microsoft.Monitor: how machines' logs and metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem


def _collection_problems(ask: Ask) -> Iterator[Problem]:
    names: set[str] = set()
    destinations = ask.at("destinations")
    for kind in ask.keys("destinations"):
        value = destinations.get(kind)
        for path, _ in ask.items(f"destinations.{kind}"):
            names.add(ask.text(f"{path}.name") or "")
        if isinstance(value, dict):
            names.add(ask.text(f"destinations.{kind}.name") or "")
    for path, _ in ask.items("dataFlows"):
        for where, text in ask.texts(f"{path}.destinations"):
            if names and text not in names:
                yield Problem(
                    where,
                    f"there is no destination {text!r}; name one of "
                    f"{', '.join(sorted(item for item in names if item))}",
                )
        if ask.is_absent(f"{path}.streams[0]"):
            yield Problem(f"{path}.streams", "is missing: name the streams that flow")
    yield from checks.resource_id(
        "dataCollectionEndpointId",
        ask.text("dataCollectionEndpointId"),
        "Microsoft.Insights/dataCollectionEndpoints",
    )


def _association_problems(ask: Ask) -> Iterator[Problem]:
    given = [
        name for name in ("dataCollectionRuleId", "dataCollectionEndpointId") if ask.is_given(name)
    ]
    if len(given) != 1:
        yield Problem(
            "dataCollectionRuleId", "must be given, or dataCollectionEndpointId; one of them"
        )
    if given == ["dataCollectionEndpointId"]:
        yield from checks.one_of(
            "associationName", ask.text("associationName"), ("configurationAccessEndpoint",)
        )


def _rule_outputs(ask: Ask) -> dict[str, Any]:
    return {"immutableId": f"dcr-{invented.digest(32, ask.id or '')}"}


def _endpoint_outputs(ask: Ask) -> dict[str, Any]:
    id, region = ask.id or "", location(ask) or "unknown"
    host = f"{id.rpartition('/')[2].lower()}-{invented.digest(4, id)}.{region}-1"
    return {
        "immutableId": f"dce-{invented.digest(32, id)}",
        "logsIngestion": {"endpoint": f"https://{host}.ingest.monitor.azure.com"},
        "metricsIngestion": {"endpoint": f"https://{host}.metrics.ingest.monitor.azure.com"},
        "configurationAccess": {"endpoint": f"https://{host}.handler.control.monitor.azure.com"},
    }


def _workspace_outputs(ask: Ask) -> dict[str, Any]:
    id, region = ask.id or "", location(ask) or "unknown"
    name = f"{id.rpartition('/')[2].lower()}-{invented.digest(4, id)}"
    return {
        "accountId": invented.guid("account", id),
        "metrics": {
            "internalId": invented.digest(32, id),
            "prometheusQueryEndpoint": f"https://{name}.{region}.prometheus.monitor.azure.com",
        },
    }


_INSIGHTS: Final = "Microsoft.Insights"

KINDS: Final = (
    Kind(
        "azure-native:monitor:DataCollectionRule",
        f"{_INSIGHTS}/dataCollectionRules/{{dataCollectionRuleName}}",
        name=naming.FREE,
        is_held_by_references=True,
        replaces=frozenset({"kind"}),
        problems=_collection_problems,
        outputs=_rule_outputs,
    ),
    Kind(
        "azure-native:monitor:DataCollectionEndpoint",
        f"{_INSIGHTS}/dataCollectionEndpoints/{{dataCollectionEndpointName}}",
        name=naming.FREE,
        is_held_by_references=True,
        replaces=frozenset({"kind"}),
        outputs=_endpoint_outputs,
    ),
    Kind(
        "azure-native:monitor:DataCollectionRuleAssociation",
        f"{{resourceUri}}/providers/{_INSIGHTS}/dataCollectionRuleAssociations/"
        "{associationName}",
        problems=_association_problems,
    ),
    Kind(
        "azure-native:monitor:AzureMonitorWorkspace",
        "Microsoft.Monitor/accounts/{azureMonitorWorkspaceName}",
        name=naming.WORKSPACE,
        outputs=_workspace_outputs,
    ),
)
