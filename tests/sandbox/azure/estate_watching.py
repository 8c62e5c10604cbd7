"""Logs, alerts, budgets and flow logs."""

from __future__ import annotations

from tests.sandbox.azure.estate import REGION, SCOPE, Estate


def watching(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
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
            "keyVaultUri": estate.out("vault", "properties", "vaultUri"),
            "keyName": "disks",
            "keyVersion": "",
        },
    )
    add(
        "linked",
        "operationalinsights:LinkedService",
        **of,
        linkedServiceName="Cluster",
        writeAccessResourceId=estate.id("logs-cluster"),
    )
    add("table", "operationalinsights:Table", **of, tableName="AzureActivity", retentionInDays=90)
    add(
        "export",
        "operationalinsights:DataExport",
        **of,
        dataExportName="audit",
        resourceId=estate.id("account"),
        tableNames=["AzureActivity"],
    )
    add(
        "diagnostics",
        "monitor:DiagnosticSetting",
        resourceUri=estate.id("vault"),
        name="audit",
        workspaceId=estate.id("logs"),
        logs=[{"categoryGroup": "audit", "enabled": True}],
    )
    add(
        "activity",
        "monitor:SubscriptionDiagnosticSetting",
        name="activity",
        workspaceId=estate.id("logs"),
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
            "metricResourceUri": estate.id("tier"),
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
        targetResourceUri=estate.id("tier"),
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
        actions={"actionGroups": [{"actionGroupId": estate.id("people")}]},
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
        scopes=[estate.id("tier")],
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
        dataCollectionEndpointId=estate.id("dce"),
        destinations={
            "logAnalytics": [{"name": "logs", "workspaceResourceId": estate.id("logs")}]
        },
        dataFlows=[{"streams": ["Microsoft-Syslog"], "destinations": ["logs"]}],
    )
    add(
        "dcra",
        "monitor:DataCollectionRuleAssociation",
        resourceUri=estate.id("cluster"),
        associationName="logs",
        dataCollectionRuleId=estate.id("dcr"),
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
        linkedResourceId=estate.id("logs"),
    )
    add("metrics", "monitor:AzureMonitorWorkspace", **group, azureMonitorWorkspaceName="metrics")
    add(
        "flows",
        "network:FlowLog",
        resourceGroupName="NetworkWatcherRG",
        networkWatcherName="NetworkWatcher_uaenorth",
        flowLogName="flows",
        targetResourceId=estate.id("vnet"),
        storageId=estate.id("account"),
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
            scope=estate.id("rg"),
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
