"""Microsoft.Insights and Microsoft.Monitor: how machines' logs and metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, generated, links, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem


def _collection_problems(inputs: Inputs) -> Iterator[Problem]:
    names: set[str] = set()
    destinations = inputs.at("destinations")
    for kind in inputs.keys("destinations"):
        value = destinations.get(kind)
        for path, _ in inputs.items(f"destinations.{kind}"):
            names.add(inputs.optional_string(f"{path}.name") or "")
        if isinstance(value, dict):
            names.add(inputs.optional_string(f"destinations.{kind}.name") or "")
    for path, _ in inputs.items("dataFlows"):
        for where, text in inputs.strings(f"{path}.destinations"):
            if names and text not in names:
                yield Problem(
                    where,
                    f"there is no destination {text!r}; name one of "
                    f"{', '.join(sorted(item for item in names if item))}",
                )
        if inputs.is_absent(f"{path}.streams[0]"):
            yield Problem(f"{path}.streams", "is missing: name the streams that flow")


def _association_problems(inputs: Inputs) -> Iterator[Problem]:
    given = [
        name
        for name in ("dataCollectionRuleId", "dataCollectionEndpointId")
        if inputs.is_given(name)
    ]
    if len(given) != 1:
        yield Problem(
            "dataCollectionRuleId", "must be given, or dataCollectionEndpointId; one of them"
        )
    if given == ["dataCollectionEndpointId"]:
        yield from checks.one_of(
            "associationName",
            inputs.optional_string("associationName"),
            ("configurationAccessEndpoint",),
        )


def _rule_outputs(resource: Resource) -> dict[str, Any]:
    return {"immutableId": f"dcr-{generated.digest(32, resource.id)}"}


def _endpoint_outputs(resource: Resource) -> dict[str, Any]:
    id, region = resource.id, location(resource) or "unknown"
    host = f"{id.rpartition('/')[2].lower()}-{generated.digest(4, id)}.{region}-1"
    return {
        "immutableId": f"dce-{generated.digest(32, id)}",
        "logsIngestion": {"endpoint": f"https://{host}.ingest.monitor.azure.com"},
        "metricsIngestion": {"endpoint": f"https://{host}.metrics.ingest.monitor.azure.com"},
        "configurationAccess": {"endpoint": f"https://{host}.handler.control.monitor.azure.com"},
    }


def _workspace_outputs(resource: Resource) -> dict[str, Any]:
    id, region = resource.id, location(resource) or "unknown"
    name = f"{id.rpartition('/')[2].lower()}-{generated.digest(4, id)}"
    return {
        "accountId": generated.guid("account", id),
        "metrics": {
            "internalId": generated.digest(32, id),
            "prometheusQueryEndpoint": f"https://{name}.{region}.prometheus.monitor.azure.com",
        },
    }


_INSIGHTS: Final = "Microsoft.Insights"

KINDS: Final = (
    AzureKind(
        "azure-native:monitor:DataCollectionRule",
        f"{_INSIGHTS}/dataCollectionRules/{{dataCollectionRuleName}}",
        name=naming.FREE,
        is_held_by_references=True,
        replaces=("kind",),
        rules=(_collection_problems,),
        references=(
            links.to("dataCollectionEndpointId", "Microsoft.Insights/dataCollectionEndpoints"),
        ),
        computed=_rule_outputs,
    ),
    AzureKind(
        "azure-native:monitor:DataCollectionEndpoint",
        f"{_INSIGHTS}/dataCollectionEndpoints/{{dataCollectionEndpointName}}",
        name=naming.FREE,
        is_held_by_references=True,
        replaces=("kind",),
        computed=_endpoint_outputs,
    ),
    AzureKind(
        "azure-native:monitor:DataCollectionRuleAssociation",
        f"{{resourceUri}}/providers/{_INSIGHTS}/dataCollectionRuleAssociations/"
        "{associationName}",
        rules=(_association_problems,),
    ),
    AzureKind(
        "azure-native:monitor:AzureMonitorWorkspace",
        "Microsoft.Monitor/accounts/{azureMonitorWorkspaceName}",
        name=naming.WORKSPACE,
        computed=_workspace_outputs,
    ),
)  # fmt: skip
