"""Which calls of AWS the provider makes of a resource, and how it names what they are given.

Only what differs stands here: members of the same name are found by `judge.members`. Sources are
the provider's own resources, in internal/service of its repository:
https://github.com/hashicorp/terraform-provider-aws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.stacks.vendors.judge import members, taken

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Made:
    """A member that the provider makes of several inputs, or in another form."""

    of: tuple[str, ...]
    """Inputs and outputs; those that a resource doesn't have are given as None."""
    make: Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """A call that the provider makes of a resource."""

    operation: str
    """Service and name, as in botocore's descriptions."""
    takes: tuple[str, ...] = ()
    """The inputs that it is given. Of a resource's first call: besides those, all that neither a
    later call takes nor the provider keeps."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Paths of the call's members by inputs' paths, where the name isn't the same."""
    made: Mapping[str, Made] = field(default_factory=dict)
    """What the provider makes itself, by the member's path."""
    into: str = ""
    """The member into which all goes that `names` and `made` don't place."""


@dataclass(frozen=True)
class Calls:
    """All calls that a resource's inputs go into."""

    calls: tuple[Call, ...]
    outputs: tuple[str, ...] = ()
    """What the first call is given of what the provider made: its name, mostly."""
    kept: tuple[str, ...] = ()
    """Inputs that decide what the provider does, and that no call is given."""


def _calls(*calls: Call, outputs: tuple[str, ...] = (), kept: tuple[str, ...] = ()) -> Calls:
    return Calls(calls, outputs, kept)


def _same(value: Any) -> Any:
    return value


def _is(value: Any) -> Made:
    """What the provider always says."""
    return Made((), lambda: value)


def _from(name: str) -> Made:
    return Made((name,), _same)


def _specified(kind: str) -> Mapping[str, Made]:
    """Tags as EC2 takes them with what is made."""

    return {
        "TagSpecifications": Made(("tags",), lambda tags: [{"ResourceType": kind, "Tags": tags}])
    }


def _attributes(names: Mapping[str, str]) -> Made:
    """Attributes of load balancers: texts by key."""

    def make(*values: Any) -> Any:
        keys = names.values()
        return [
            {"Key": key, "Value": str(value).lower()}
            for key, value in zip(keys, values, strict=True)
            if value is not None
        ]

    return Made(tuple(names), make)


def _permission(
    protocol: str, first: int | None, last: int | None, *others: Any
) -> list[dict[str, Any]]:
    cidr, group, prefixes, description = others
    text = {"Description": description} if description is not None else {}
    permission: dict[str, Any] = {"IpProtocol": protocol}
    if first is not None:
        permission |= {"FromPort": first, "ToPort": last}
    for name, member, value in (
        ("IpRanges", "CidrIp", cidr),
        ("UserIdGroupPairs", "GroupId", group),
        ("PrefixListIds", "PrefixListId", prefixes),
    ):
        if value is not None:
            permission[name] = [{member: value, **text}]
    return [permission]


def _rule(direction: str) -> Calls:
    """A rule of a security group, by itself."""
    of = (
        "ipProtocol", "fromPort", "toPort", "cidrIpv4", "referencedSecurityGroupId",
        "prefixListId", "description",
    )  # fmt: skip
    return _calls(
        Call(
            f"ec2.AuthorizeSecurityGroup{direction}",
            names={"securityGroupId": "GroupId"},
            made={"IpPermissions": Made(of, _permission), **_specified("security-group-rule")},
        )
    )


def _subscribed(notifications: list[Values] | None) -> Any:
    return [
        {
            "Notification": {
                key: value for key, value in each.items() if key != "subscriberEmailAddresses"
            },
            "Subscribers": [
                {"SubscriptionType": "EMAIL", "Address": address}
                for address in each["subscriberEmailAddresses"]
            ],
        }
        for each in notifications or ()
    ]


def _changes(name: str, kind: str, aliases: list[Values]) -> Any:
    target = {
        "HostedZoneId": aliases[0]["zoneId"],
        "DNSName": aliases[0]["name"],
        "EvaluateTargetHealth": aliases[0]["evaluateTargetHealth"],
    }
    record = {"Name": name, "Type": kind, "AliasTarget": target}
    return [{"Action": "CREATE", "ResourceRecordSet": record}]


def _in_bucket(operation: str, **names: str) -> Calls:
    """A setting of a bucket, which is a call of its own."""
    return _calls(Call(f"s3.{operation}", names=names))


#: What FSx takes beside the settings of one kind of file system.
_OF_EVERY_FILE_SYSTEM = (
    "FileSystemTypeVersion", "KmsKeyId", "SecurityGroupIds", "StorageCapacity", "StorageType",
    "SubnetIds", "Tags",
)  # fmt: skip

#: By type of resource.
CALLS: Final[Mapping[str, Calls]] = {
    "aws:acm/certificate:Certificate": _calls(Call("acm.RequestCertificate")),
    "aws:acmpca/certificate:Certificate": _calls(
        Call("acm-pca.IssueCertificate", names={"certificateSigningRequest": "Csr"})
    ),
    "aws:acmpca/certificateAuthority:CertificateAuthority": _calls(
        Call("acm-pca.CreateCertificateAuthority", names={"type": "CertificateAuthorityType"}),
        Call(
            "acm-pca.DeleteCertificateAuthority",
            ("permanentDeletionTimeInDays",),
            made={"CertificateAuthorityArn": _from("id")},
        ),
    ),
    "aws:acmpca/certificateAuthorityCertificate:CertificateAuthorityCertificate": _calls(
        Call("acm-pca.ImportCertificateAuthorityCertificate")
    ),
    "aws:acmpca/permission:Permission": _calls(Call("acm-pca.CreatePermission")),
    "aws:appautoscaling/policy:Policy": _calls(
        Call("application-autoscaling.PutScalingPolicy", names={"name": "PolicyName"}),
        outputs=("name",),
    ),
    "aws:appautoscaling/target:Target": _calls(
        Call("application-autoscaling.RegisterScalableTarget")
    ),
    "aws:autoscaling/group:Group": _calls(
        Call(
            "autoscaling.CreateAutoScalingGroup",
            ("name",),
            names={"name": "AutoScalingGroupName", "launchTemplate.id": "LaunchTemplateId"},
            made={"VPCZoneIdentifier": Made(("vpcZoneIdentifiers",), ",".join)},
        ),
        Call(
            "autoscaling.StartInstanceRefresh",
            ("name", "instanceRefresh"),
            {"name": "AutoScalingGroupName", "instanceRefresh": ""},
        ),
        outputs=("name",),
    ),
    "aws:autoscaling/policy:Policy": _calls(
        Call("autoscaling.PutScalingPolicy", names={"name": "PolicyName"}), outputs=("name",)
    ),
    "aws:autoscaling/tag:Tag": _calls(
        Call(
            "autoscaling.CreateOrUpdateTags",
            made={
                "Tags": Made(
                    ("autoscalingGroupName", "tag"),
                    lambda group, tag: [
                        {**tag, "ResourceId": group, "ResourceType": "auto-scaling-group"}
                    ],
                )
            },
        )
    ),
    "aws:budgets/budget:Budget": _calls(
        Call(
            "budgets.CreateBudget",
            names={"accountId": "AccountId", "name": "Budget.BudgetName", "tags": "ResourceTags"},
            made={
                "Budget.BudgetLimit.Amount": _from("limitAmount"),
                "Budget.BudgetLimit.Unit": _from("limitUnit"),
                "Budget.CostFilters": Made(
                    ("costFilters",),
                    lambda filters: {each["name"]: each["values"] for each in filters or ()},
                ),
                "Budget.TimePeriod.Start": Made(
                    ("timePeriodStart",),
                    lambda start: datetime.strptime(start, "%Y-%m-%d_%H:%M").replace(tzinfo=UTC),
                ),
                "NotificationsWithSubscribers": Made(("notifications",), _subscribed),
            },
            into="Budget",
        ),
        outputs=("accountId",),
    ),
    "aws:cloudtrail/trail:Trail": _calls(
        Call(
            "cloudtrail.CreateTrail",
            ("name",),
            names={"cloudWatchLogsGroupArn": "CloudWatchLogsLogGroupArn", "tags": "TagsList"},
        ),
        Call(
            "cloudtrail.PutEventSelectors",
            ("name", "advancedEventSelectors"),
            {"name": "TrailName"},
        ),
        kept=("enableLogging",),
    ),
    "aws:cloudwatch/eventRule:EventRule": _calls(Call("events.PutRule")),
    "aws:cloudwatch/eventTarget:EventTarget": _calls(
        Call(
            "events.PutTargets",
            made={
                "Targets": Made(("targetId", "arn"), lambda name, arn: [{"Id": name, "Arn": arn}])
            },
        ),
        outputs=("targetId",),
    ),
    "aws:cloudwatch/logGroup:LogGroup": _calls(
        Call("logs.CreateLogGroup", ("name",), {"name": "logGroupName"}),
        Call("logs.PutRetentionPolicy", ("name", "retentionInDays"), {"name": "logGroupName"}),
        kept=("skipDestroy",),
    ),
    # Both are there with their network: the provider takes away what they have, and adds tags.
    "aws:ec2/defaultRouteTable:DefaultRouteTable": _calls(
        Call("ec2.CreateTags", names={"defaultRouteTableId": "Resources"}), kept=("routes",)
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _calls(
        Call("ec2.CreateTags", names={"id": "Resources"}),
        outputs=("id",),
        kept=("vpcId", "ingress", "egress"),
    ),
    "aws:ec2/eip:Eip": _calls(Call("ec2.AllocateAddress", made=_specified("elastic-ip"))),
    "aws:ec2/flowLog:FlowLog": _calls(
        Call(
            "ec2.CreateFlowLogs",
            names={"iamRoleArn": "DeliverLogsPermissionArn", "vpcId": "ResourceIds"},
            made={"ResourceType": _is("VPC"), **_specified("vpc-flow-log")},
        )
    ),
    "aws:ec2/internetGateway:InternetGateway": _calls(
        Call("ec2.CreateInternetGateway", made=_specified("internet-gateway")),
        Call("ec2.AttachInternetGateway", ("vpcId",), made={"InternetGatewayId": _from("id")}),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _calls(
        Call(
            "ec2.CreateLaunchTemplate",
            names={
                "name": "LaunchTemplateName",
                "description": "VersionDescription",
                "vpcSecurityGroupIds": "LaunchTemplateData.SecurityGroupIds",
                "networkInterfaces.securityGroups": "Groups",
            },
            made=_specified("launch-template"),
            into="LaunchTemplateData",
        ),
        outputs=("name",),
        # The default version is another one after a change alone.
        kept=("updateDefaultVersion",),
    ),
    "aws:ec2/managedPrefixList:ManagedPrefixList": _calls(
        Call(
            "ec2.CreateManagedPrefixList",
            names={"name": "PrefixListName"},
            made=_specified("prefix-list"),
        )
    ),
    "aws:ec2/natGateway:NatGateway": _calls(
        Call("ec2.CreateNatGateway", made=_specified("natgateway"))
    ),
    "aws:ec2/placementGroup:PlacementGroup": _calls(
        Call(
            "ec2.CreatePlacementGroup",
            names={"name": "GroupName"},
            made=_specified("placement-group"),
        )
    ),
    "aws:ec2/route:Route": _calls(Call("ec2.CreateRoute")),
    "aws:ec2/routeTable:RouteTable": _calls(
        Call("ec2.CreateRouteTable", made=_specified("route-table"))
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _calls(Call("ec2.AssociateRouteTable")),
    "aws:ec2/securityGroup:SecurityGroup": _calls(
        Call(
            "ec2.CreateSecurityGroup",
            names={"name": "GroupName"},
            made=_specified("security-group"),
        ),
        outputs=("name",),
        kept=("revokeRulesOnDelete",),
    ),
    "aws:ec2/subnet:Subnet": _calls(
        Call("ec2.CreateSubnet", made=_specified("subnet")),
        Call(
            "ec2.ModifySubnetAttribute", ("mapPublicIpOnLaunch",), made={"SubnetId": _from("id")}
        ),
        Call(
            "ec2.ModifySubnetAttribute",
            ("assignIpv6AddressOnCreation",),
            made={"SubnetId": _from("id")},
        ),
    ),
    "aws:ec2/vpc:Vpc": _calls(
        Call("ec2.CreateVpc", made=_specified("vpc")),
        Call("ec2.ModifyVpcAttribute", ("enableDnsSupport",), made={"VpcId": _from("id")}),
        Call("ec2.ModifyVpcAttribute", ("enableDnsHostnames",), made={"VpcId": _from("id")}),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _calls(
        Call(
            "ec2.CreateVpcEndpoint",
            names={"policy": "PolicyDocument"},
            made=_specified("vpc-endpoint"),
        )
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": _calls(
        Call(
            "ecr.PutLifecyclePolicy",
            names={"repository": "repositoryName", "policy": "lifecyclePolicyText"},
        )
    ),
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": _calls(
        Call("ecr.CreatePullThroughCacheRule")
    ),
    "aws:ecr/registryPolicy:RegistryPolicy": _calls(
        Call("ecr.PutRegistryPolicy", names={"policy": "policyText"})
    ),
    "aws:ecr/repository:Repository": _calls(
        Call("ecr.CreateRepository", names={"name": "repositoryName"}), kept=("forceDelete",)
    ),
    "aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate": _calls(
        Call("ecr.CreateRepositoryCreationTemplate")
    ),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": _calls(
        Call(
            "ecr.SetRepositoryPolicy",
            names={"repository": "repositoryName", "policy": "policyText"},
        )
    ),
    "aws:ecs/cluster:Cluster": _calls(Call("ecs.CreateCluster", names={"name": "clusterName"})),
    "aws:ecs/service:Service": _calls(
        Call(
            "ecs.CreateService",
            names={
                "name": "serviceName",
                "networkConfiguration": "networkConfiguration.awsvpcConfiguration",
                "deploymentCircuitBreaker": "deploymentConfiguration.deploymentCircuitBreaker",
                "deploymentMaximumPercent": "deploymentConfiguration.maximumPercent",
                "deploymentMinimumHealthyPercent": "deploymentConfiguration.minimumHealthyPercent",
            },
        )
    ),
    "aws:ecs/taskDefinition:TaskDefinition": _calls(
        Call(
            "ecs.RegisterTaskDefinition",
            made={"containerDefinitions": Made(("containerDefinitions",), json.loads)},
        )
    ),
    "aws:efs/backupPolicy:BackupPolicy": _calls(Call("efs.PutBackupPolicy")),
    "aws:efs/fileSystem:FileSystem": _calls(
        Call("efs.CreateFileSystem"),
        Call(
            "efs.PutLifecycleConfiguration",
            ("lifecyclePolicies",),
            made={
                "FileSystemId": _from("id"),
                # One change of class is an entry by itself.
                "LifecyclePolicies": Made(
                    ("lifecyclePolicies",),
                    lambda policies: [
                        {name: value} for each in policies for name, value in each.items()
                    ],
                ),
            },
        ),
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": _calls(Call("efs.PutFileSystemPolicy")),
    "aws:efs/mountTarget:MountTarget": _calls(Call("efs.CreateMountTarget")),
    "aws:eks/accessEntry:AccessEntry": _calls(Call("eks.CreateAccessEntry")),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _calls(
        Call("eks.AssociateAccessPolicy")
    ),
    "aws:eks/addon:Addon": _calls(
        Call(
            "eks.CreateAddon",
            ("clusterName", "addonName"),
            {"resolveConflictsOnCreate": "resolveConflicts"},
        ),
        Call(
            "eks.UpdateAddon",
            ("clusterName", "addonName", "resolveConflictsOnUpdate"),
            {"resolveConflictsOnUpdate": "resolveConflicts"},
        ),
    ),
    "aws:eks/cluster:Cluster": _calls(
        Call(
            "eks.CreateCluster",
            names={"vpcConfig": "resourcesVpcConfig"},
            made={
                "logging": Made(
                    ("enabledClusterLogTypes",),
                    lambda types: {"clusterLogging": [{"enabled": True, "types": types}]},
                )
            },
        )
    ),
    "aws:eks/nodeGroup:NodeGroup": _calls(
        Call("eks.CreateNodegroup", names={"nodeRoleArn": "nodeRole", "subnetIds": "subnets"}),
        outputs=("nodeGroupName",),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _calls(
        Call("eks.CreatePodIdentityAssociation")
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": _calls(
        Call(
            "fsx.CreateFileSystem",
            names={each[0].lower() + each[1:]: each for each in _OF_EVERY_FILE_SYSTEM},
            made={"FileSystemType": _is("LUSTRE")},
            into="LustreConfiguration",
        ),
        kept=("skipFinalBackup",),
    ),
    "aws:guardduty/detector:Detector": _calls(Call("guardduty.CreateDetector")),
    "aws:guardduty/detectorFeature:DetectorFeature": _calls(
        Call(
            "guardduty.UpdateDetector",
            made={
                "Features": Made(
                    ("name", "status"), lambda name, status: [{"Name": name, "Status": status}]
                )
            },
        )
    ),
    "aws:iam/instanceProfile:InstanceProfile": _calls(
        Call("iam.CreateInstanceProfile", ("name",), {"name": "InstanceProfileName"}),
        Call(
            "iam.AddRoleToInstanceProfile",
            ("name", "role"),
            {"name": "InstanceProfileName", "role": "RoleName"},
        ),
    ),
    "aws:iam/policy:Policy": _calls(
        Call("iam.CreatePolicy", names={"name": "PolicyName", "policy": "PolicyDocument"})
    ),
    "aws:iam/role:Role": _calls(
        Call(
            "iam.CreateRole",
            names={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"},
        )
    ),
    "aws:iam/rolePolicy:RolePolicy": _calls(
        Call(
            "iam.PutRolePolicy",
            names={"name": "PolicyName", "policy": "PolicyDocument", "role": "RoleName"},
        ),
        outputs=("name",),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _calls(
        Call("iam.AttachRolePolicy", names={"role": "RoleName"})
    ),
    "aws:kms/alias:Alias": _calls(Call("kms.CreateAlias", names={"name": "AliasName"})),
    "aws:kms/key:Key": _calls(
        Call("kms.CreateKey"),
        Call("kms.EnableKeyRotation", ("rotationPeriodInDays",), made={"KeyId": _from("id")}),
        Call(
            "kms.ScheduleKeyDeletion",
            ("deletionWindowInDays",),
            {"deletionWindowInDays": "PendingWindowInDays"},
            {"KeyId": _from("id")},
        ),
        # It decides whether there is a call of rotation.
        kept=("enableKeyRotation",),
    ),
    "aws:lb/listener:Listener": _calls(
        Call(
            "elbv2.CreateListener",
            made={
                "Certificates": Made(("certificateArn",), lambda arn: [{"CertificateArn": arn}])
            },
        )
    ),
    "aws:lb/loadBalancer:LoadBalancer": _calls(
        Call(
            "elbv2.CreateLoadBalancer",
            names={"loadBalancerType": "Type"},
            made={
                "Scheme": Made(("internal",), lambda own: "internal" if own else "internet-facing")
            },
        ),
        Call(
            "elbv2.ModifyLoadBalancerAttributes",
            made={
                "LoadBalancerArn": _from("id"),
                "Attributes": _attributes(
                    {
                        "enableCrossZoneLoadBalancing": "load_balancing.cross_zone.enabled",
                        "enableDeletionProtection": "deletion_protection.enabled",
                    }
                ),
            },
        ),
        outputs=("name",),
    ),
    "aws:lb/targetGroup:TargetGroup": _calls(
        Call(
            "elbv2.CreateTargetGroup",
            names={
                "healthCheck": "",
                "healthCheck.enabled": "HealthCheckEnabled",
                "healthCheck.interval": "HealthCheckIntervalSeconds",
                "healthCheck.timeout": "HealthCheckTimeoutSeconds",
                "healthCheck.port": "HealthCheckPort",
                "healthCheck.protocol": "HealthCheckProtocol",
                "healthCheck.path": "HealthCheckPath",
                "healthCheck.healthyThreshold": "HealthyThresholdCount",
                "healthCheck.unhealthyThreshold": "UnhealthyThresholdCount",
            },
        ),
        Call(
            "elbv2.ModifyTargetGroupAttributes",
            made={
                "TargetGroupArn": _from("id"),
                "Attributes": _attributes(
                    {
                        "connectionTermination": "deregistration_delay.connection_termination"
                        ".enabled",
                        "deregistrationDelay": "deregistration_delay.timeout_seconds",
                    }
                ),
            },
        ),
        outputs=("name",),
    ),
    "aws:networkfirewall/firewall:Firewall": _calls(
        Call("network-firewall.CreateFirewall", names={"name": "FirewallName"})
    ),
    "aws:networkfirewall/firewallPolicy:FirewallPolicy": _calls(
        Call("network-firewall.CreateFirewallPolicy", names={"name": "FirewallPolicyName"})
    ),
    "aws:networkfirewall/loggingConfiguration:LoggingConfiguration": _calls(
        Call("network-firewall.UpdateLoggingConfiguration")
    ),
    "aws:networkfirewall/ruleGroup:RuleGroup": _calls(
        Call("network-firewall.CreateRuleGroup", names={"name": "RuleGroupName"})
    ),
    "aws:route53/record:Record": _calls(
        Call(
            "route53.ChangeResourceRecordSets",
            names={"zoneId": "HostedZoneId"},
            made={"ChangeBatch.Changes": Made(("name", "type", "aliases"), _changes)},
        )
    ),
    "aws:route53/zone:Zone": _calls(
        Call(
            "route53.CreateHostedZone",
            names={"comment": "HostedZoneConfig.Comment", "vpcs": "VPC"},
            made={"CallerReference": _is("terraform-20260101000000000000000001")},
        ),
        Call(
            "route53.ChangeTagsForResource",
            ("tags",),
            {"tags": "AddTags"},
            {"ResourceId": _from("id"), "ResourceType": _is("hostedzone")},
        ),
        kept=("forceDestroy",),
    ),
    "aws:s3/bucket:Bucket": _calls(
        Call(
            "s3.CreateBucket",
            ("bucket",),
            {
                "objectLockEnabled": "ObjectLockEnabledForBucket",
                "region": "CreateBucketConfiguration.LocationConstraint",
            },
        ),
        Call("s3.PutBucketTagging", ("bucket", "tags"), {"tags": "Tagging.TagSet"}),
        outputs=("region",),
        kept=("forceDestroy",),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _in_bucket(
        "PutBucketLifecycleConfiguration", rules="LifecycleConfiguration.Rules"
    ),
    "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration": _in_bucket(
        "PutObjectLockConfiguration",
        objectLockEnabled="ObjectLockConfiguration.ObjectLockEnabled",
        rule="ObjectLockConfiguration.Rule",
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _in_bucket(
        "PutBucketOwnershipControls", rule="OwnershipControls.Rules"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": _in_bucket("PutBucketPolicy"),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _calls(
        Call(
            "s3.PutPublicAccessBlock",
            names={"bucket": "Bucket"},
            into="PublicAccessBlockConfiguration",
        )
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        _calls(
            Call(
                "s3.PutBucketEncryption",
                names={
                    "rules": "ServerSideEncryptionConfiguration.Rules",
                    "rules.applyServerSideEncryptionByDefault.kmsMasterKeyId": "KMSMasterKeyID",
                },
            )
        )
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _in_bucket("PutBucketVersioning"),
    "aws:secretsmanager/secret:Secret": _calls(
        Call("secretsmanager.CreateSecret"),
        Call(
            "secretsmanager.DeleteSecret",
            ("recoveryWindowInDays",),
            made={"SecretId": _from("id")},
        ),
    ),
    "aws:sns/topic:Topic": _calls(
        Call("sns.CreateTopic", names={"kmsMasterKeyId": "Attributes.KmsMasterKeyId"})
    ),
    "aws:sns/topicPolicy:TopicPolicy": _calls(
        Call(
            "sns.SetTopicAttributes",
            names={"arn": "TopicArn", "policy": "AttributeValue"},
            made={"AttributeName": _is("Policy")},
        )
    ),
    "aws:sns/topicSubscription:TopicSubscription": _calls(
        Call("sns.Subscribe", names={"topic": "TopicArn"})
    ),
    "aws:ssm/document:Document": _calls(Call("ssm.CreateDocument")),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("Egress"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("Ingress"),
}


def requests(token: str, inputs: Values, outputs: Values) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the provider makes of a resource, each by its name with its members.

    Raises:
        KeyError: nothing is known of the type.
    """
    calls = CALLS[token]
    first, *later = calls.calls
    given = {name: outputs[name] for name in calls.outputs} | dict(inputs)
    others = {name for call in later for name in _needed(call)} | set(calls.kept)
    own = given.keys() - others | (given.keys() & _needed(first))
    made = [_request(first, own, given, outputs)]
    for call in later:
        # A later call is made for the sake of what it alone takes.
        if _needed(call) & inputs.keys() - _needed(first):
            made.append(_request(call, given.keys() & _needed(call), given, outputs))
    return made


def _needed(call: Call) -> set[str]:
    return {*call.takes, *(name for made in call.made.values() for name in made.of)}


def _request(
    call: Call, own: Iterable[str], given: Values, outputs: Values
) -> tuple[str, dict[str, Any]]:
    # What it hasn't got, the provider reports as an empty text.
    known = {**{name: each for name, each in outputs.items() if each != ""}, **given}
    made: dict[str, Any] = {}
    for path, each in call.made.items():
        values = [known.get(name) for name in each.of]
        if not each.of or any(value is not None for value in values):
            made[path] = each.make(*values)
    remade = {name for each in call.made.values() for name in each.of}
    values = {name: given[name] for name in own if name not in remade}
    return call.operation, members(taken(call.operation), values, call.names, made, call.into)
