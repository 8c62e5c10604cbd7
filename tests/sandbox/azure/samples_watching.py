"""Logs, alerts, budgets and flow logs."""

from __future__ import annotations

from tests.sandbox.azure.samples import REGION, SCOPE, Samples


def watching(samples: Samples) -> None:
    add, group = samples.add, {"resourceGroupName": "rg"}
    add("logs", "operationalinsights:Workspace", **group, workspaceName="logs", retentionInDays=90)
    of = {**group, "workspaceName": "logs"}
    add(
        "logs-cluster",
        "operationalinsights:Cluster",
        **group,
        clusterName="logs",
        identity={"type": "SystemAssigned"},
        sku={"name": "CapacityReservation", "capacity": 100},
        keyVaultProperties={
            "keyVaultUri": samples.out("vault", "properties", "vaultUri"),
            "keyName": "disks",
            "keyVersion": "",
        },
    )
    add(
        "linked",
        "operationalinsights:LinkedService",
        **of,
        linkedServiceName="Cluster",
        writeAccessResourceId=samples.id("logs-cluster"),
    )
    add("table", "operationalinsights:Table", **of, tableName="AzureActivity", retentionInDays=90)
    add(
        "export",
        "operationalinsights:DataExport",
        **of,
        dataExportName="audit",
        resourceId=samples.id("account"),
        tableNames=["AzureActivity"],
    )
    add(
        "diagnostics",
        "monitor:DiagnosticSetting",
        resourceUri=samples.id("vault"),
        name="audit",
        workspaceId=samples.id("logs"),
        logs=[{"categoryGroup": "audit", "enabled": True}],
    )
    add(
        "activity",
        "monitor:SubscriptionDiagnosticSetting",
        name="activity",
        workspaceId=samples.id("logs"),
        logs=[{"category": "Administrative", "enabled": True}],
    )
    add(
        "people",
        "monitor:ActionGroup",
        **group,
        actionGroupName="people",
        groupShortName="people",
        enabled=True,
        location="global",
        emailReceivers=[{"name": "a", "emailAddress": "a@example.ae"}],
    )
    rule = {
        "metricTrigger": {
            "metricName": "Percentage CPU",
            "metricResourceUri": samples.id("tier"),
            "operator": "GreaterThan",
            "statistic": "Average",
            "threshold": 60,
            "timeAggregation": "Average",
            "timeGrain": "PT1M",
            "timeWindow": "PT5M",
        },
        "scaleAction": {
            "cooldown": "PT5M",
            "direction": "Increase",
            "type": "ChangeCount",
            "value": "1",
        },
    }
    add(
        "scaling",
        "monitor:AutoscaleSetting",
        **group,
        autoscaleSettingName="tier",
        targetResourceUri=samples.id("tier"),
        profiles=[
            {
                "name": "load",
                "capacity": {"minimum": "1", "default": "2", "maximum": "4"},
                "rules": [rule],
            }
        ],
    )
    add(
        "alert",
        "monitor:ActivityLogAlert",
        **group,
        activityLogAlertName="deleted",
        location="global",
        scopes=[SCOPE],
        condition={"allOf": [{"field": "category", "equals": "Administrative"}]},
        actions={"actionGroups": [{"actionGroupId": samples.id("people")}]},
    )
    add(
        "metric",
        "monitor:MetricAlert",
        **group,
        ruleName="cpu",
        location="global",
        enabled=True,
        severity=2,
        evaluationFrequency="PT5M",
        windowSize="PT5M",
        scopes=[samples.id("tier")],
        criteria={"odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria"},
    )
    add("query", "monitor:ScheduledQueryRule", **group, ruleName="query")
    add(
        "dce",
        "monitor:DataCollectionEndpoint",
        **group,
        dataCollectionEndpointName="dce",
    )
    add(
        "dcr",
        "monitor:DataCollectionRule",
        **group,
        dataCollectionRuleName="dcr",
        dataCollectionEndpointId=samples.id("dce"),
        destinations={
            "logAnalytics": [{"name": "logs", "workspaceResourceId": samples.id("logs")}]
        },
        dataFlows=[{"streams": ["Microsoft-Syslog"], "destinations": ["logs"]}],
    )
    add(
        "dcra",
        "monitor:DataCollectionRuleAssociation",
        resourceUri=samples.id("cluster"),
        associationName="logs",
        dataCollectionRuleId=samples.id("dcr"),
    )
    add(
        "ampls",
        "monitor:PrivateLinkScope",
        **group,
        scopeName="scope",
        location="global",
        accessModeSettings={
            "ingestionAccessMode": "PrivateOnly",
            "queryAccessMode": "PrivateOnly",
        },
    )
    add(
        "scoped",
        "monitor:PrivateLinkScopedResource",
        **group,
        scopeName="scope",
        name="logs",
        linkedResourceId=samples.id("logs"),
    )
    add("metrics", "monitor:AzureMonitorWorkspace", **group, azureMonitorWorkspaceName="metrics")
    add(
        "flows",
        "network:FlowLog",
        resourceGroupName="NetworkWatcherRG",
        networkWatcherName="NetworkWatcher_uaenorth",
        flowLogName="flows",
        targetResourceId=samples.id("vnet"),
        storageId=samples.id("account"),
        enabled=True,
        location=REGION,
    )
    add("watcher", "network:NetworkWatcher", **group, networkWatcherName="watcher")
    notifications = {
        "eighty": {
            "enabled": True,
            "operator": "GreaterThan",
            "threshold": 80,
            "contactEmails": ["a@example.ae"],
        }
    }
    for key, module in (("budget", "consumption"), ("cost-budget", "costmanagement")):
        add(
            key,
            f"{module}:Budget",
            scope=samples.id("rg"),
            budgetName="monthly",
            amount=1000,
            category="Cost",
            timeGrain="Monthly",
            timePeriod={"startDate": "2026-12-01T00:00:00Z"},
            notifications=notifications,
        )
    add(
        "contact",
        "security:SecurityContact",
        securityContactName="default",
        emails="a@example.ae",
        isEnabled=True,
    )
    add(
        "defender",
        "security:Pricing",
        scopeId=SCOPE,
        pricingName="Containers",
        pricingTier="Standard",
    )
