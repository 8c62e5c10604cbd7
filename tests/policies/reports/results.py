"""Made-up results: a small one with everything in it, and a large one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from falaj.policies.reports.result import (
    AnsweredBy,
    CheckResult,
    CiRun,
    Location,
    Outcome,
    PackDigest,
    Provenance,
    ResourceResult,
    Revision,
    RuleRecord,
    StackResult,
    WaiverUse,
)

STARTED = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
PROVENANCE = Provenance(
    "fatima", "ci-runner-7", "3.11.2", Revision("9f2c41d0b7" + "ab" * 15),
    CiRun(
        "GitLab CI/CD", "4711", "https://git.example.ae/platform/falaj/-/jobs/4711", "fatima.s",
        "9f2c41d0b7" + "ab" * 15, "https://git.example.ae/platform/falaj",
    ),
)  # fmt: skip
RULES = (
    RuleRecord(
        "residency-aws-s3-replication", "residency", "S3 replicates inside of the country only",
        "critical", ("pdpl:22", "pdpl:23", "health-data:13", "iso27001:A.5.14"),
        "Replicate to a bucket in me-central-1, or remove the rule.",
    ),
    RuleRecord(
        "encryption-aws-storage-key", "encryption", "Stores are encrypted with a customer's key",
        "high", ("pdpl:20", "iso27001:A.8.24", "gdpr:32"),
        "Name a key of KMS that the stack makes.",
    ),
    RuleRecord(
        "zero-trust-aws-open-admin-port", "zero_trust", "Administrative ports are closed",
        "high", ("cis-aws:6.3", "iso27001:A.8.20", "nist-800-207:6"),
        "Let only the office's own range in, or use Session Manager.",
    ),
    RuleRecord(
        "governance-required-tags", "governance", "Everything that takes tags carries them",
        "low", ("iso27001:A.5.9", "iso27001:A.5.13"), "Add the tags that are missing.",
    ),
)  # fmt: skip
#: A waiver's reason and names of resources may hold anything.
HOSTILE = "<script>alert(1)</script>"
ARABIC = "سجلات-التدقيق"
BUCKET = "aws:s3/bucket:Bucket"
WAIVER = WaiverUse(
    "W-2026-004", "ciso@example.ae", f"until the dedicated cluster is there {HOSTILE}",
    date(2027, 3, 31),
)  # fmt: skip


def urn(stack: str, kind: str, name: str) -> str:
    return f"urn:pulumi:{stack}::falaj::{kind}::{name}"


def resource(stack: str, name: str, kind: str = BUCKET, **more: object) -> ResourceResult:
    given: dict[str, object] = {
        "place": "aws/me-central-1",
        "encryption": "customer-key",
        "data_class": "confidential",
        "rules": tuple(each.id for each in RULES),
        **more,
    }
    return ResourceResult(urn(stack, kind, name), kind, name, **given)  # type: ignore[arg-type]


def small() -> CheckResult:
    """One stack with a finding of each status, and one that could not be checked."""
    group = "aws:ec2/securityGroup:SecurityGroup"
    resources = (
        resource("dev", "models", source=Location("stacks/__main__.py", 41)),
        resource("dev", "data", encryption="provider-key", source=Location("stacks/plan.py")),
        resource("dev", ARABIC, encryption="unknown", place="unknown"),
        resource("dev", HOSTILE, encryption="none"),
        resource(
            "dev", "door", group, encryption="not-applicable", data_class="",
            source=Location("Pulumi.dev.yaml", 7, "falaj:ingress"),
        ),
    )  # fmt: skip
    outcomes = (
        Outcome(
            RULES[0].id, resources[0].urn, "rules[0].destination.bucket", "violation",
            "the destination bucket is in eu-west-1; data may be in me-central-1",
            "violation", "critical",
        ),
        Outcome(
            RULES[1].id, resources[1].urn, "serverSideEncryptionConfiguration", "violation",
            "no key is named, so the service's own key is used", "waived", "high", WAIVER,
        ),
        Outcome(
            RULES[1].id, resources[2].urn, "kmsKeyId", "indeterminate",
            "the key can't be known during preview", "indeterminate", "high",
        ),
        Outcome(
            RULES[2].id, resources[4].urn, "ingress[0].cidrBlocks[0]", "violation",
            "port 22 is open to 0.0.0.0/0", "violation", "high",
            note="waiver W-2025-001 expired on 2026-01-31",
        ),
        Outcome(
            RULES[3].id, resources[3].urn, "tags", "indeterminate",
            "the tags can't be known during preview", "advisory", "low",
        ),
    )  # fmt: skip
    return CheckResult(
        STARTED,
        STARTED + timedelta(seconds=12.4),
        "0.1.0",
        PROVENANCE,
        (PackDigest("residency", "1.0.0", "ab" * 32), PackDigest("all", "1.0.0", "cd" * 32)),
        (
            StackResult(
                "dev", "falaj", "sandbox", "12" * 32, "", resources, outcomes,
                pulumi_version="3.272.0",
            ),
            StackResult("prod", "falaj", "nobody", errors=("the backend can't be reached",)),
        ),
        RULES,
    )  # fmt: skip


def clean() -> CheckResult:
    """One stack without a finding."""
    return CheckResult(
        STARTED, STARTED + timedelta(seconds=3), "0.1.0",
        Provenance("fatima", "laptop", "3.11.2"), (PackDigest("all", "1.0.0", "ef" * 32),),
        (StackResult("dev", "falaj", "sandbox", resources=(resource("dev", "models"),)),), RULES,
    )  # fmt: skip


def answered(*sources: AnsweredBy) -> CheckResult:
    """One clean stack for each source."""
    stacks = tuple(
        replace(
            clean().stacks[0],
            name=f"s{number}",
            answered_by=source,
            errors=("no",) if source == "nobody" else (),
            other_providers=("random", HOSTILE) if source == "sandbox-and-others" else (),
            not_modelled=("docker", HOSTILE) if source == "sandbox" else (),
        )
        for number, source in enumerate(sources)
    )
    return replace(clean(), stacks=stacks)


def hostile(text: str) -> CheckResult:
    """A result in which everything that comes from outside is this text."""
    found = small()
    stack = found.stacks[0]
    made = replace(
        stack.resources[0], name=text, type=text, place=text, data_class=text,
        source=Location(text, 1, text),
    )  # fmt: skip
    outcomes = tuple(
        replace(each, path=text, reason=text, note=text, waiver=each.waiver and replace(
            each.waiver, id=text, approver=text, reason=text,
        ))
        for each in stack.outcomes
    )  # fmt: skip
    return replace(
        found,
        tool_version=text,
        provenance=Provenance(
            text, text, text, Revision(text, changed=True, problem=text),
            CiRun(text, text, text, text, text, text),
        ),
        packs=(PackDigest(text, text, text),),
        rules=(replace(RULES[0], title=text, remediation=text, pack=text), *RULES[1:]),
        stacks=(
            replace(
                stack, name=text, project=text, program_digest=text, state_digest=text,
                resources=(made, *stack.resources[1:]), outcomes=outcomes, errors=(text,),
                answered_by="sandbox-and-others", other_providers=(text,), pulumi_version=text,
            ),
            replace(stack, name=text + "2", answered_by="exported-state", resources=()),
        ),
    )  # fmt: skip


def large(stacks: int = 5, resources: int = 1000) -> CheckResult:
    """Many resources, and a finding at each tenth."""
    states = ("customer-key", "provider-key", "none", "unknown", "not-applicable")
    places = ("aws/me-central-1", "azure/uaenorth", "azure/uaecentral", "global", "unknown", "")
    kinds = (BUCKET, "azure-native:storage:StorageAccount", "kubernetes:apps/v1:Deployment")
    found: list[StackResult] = []
    for one in range(stacks):
        stack = f"stack-{one}"
        made = tuple(
            resource(
                stack, f"a-resource-with-quite-a-long-name-{number}", kinds[number % 3],
                encryption=states[number % 7 % 5], place=places[number % 11 % 6],
                source=Location("stacks/__main__.py", number + 1),
            )
            for number in range(resources)
        )  # fmt: skip
        outcomes = tuple(
            Outcome(
                RULES[number % 4].id, each.urn, f"rules[{number}].x", "violation",
                "the destination is in eu-west-1; data may be in me-central-1",
                "violation", RULES[number % 4].severity,
            )
            for number, each in enumerate(made)
            if number % 10 == 0
        )  # fmt: skip
        found.append(StackResult(stack, "falaj", "sandbox", "12" * 32, "", made, outcomes))
    return CheckResult(
        STARTED, STARTED + timedelta(minutes=2), "0.1.0", PROVENANCE,
        (PackDigest("all", "1.0.0", "ef" * 32),), tuple(found), RULES,
    )  # fmt: skip
