from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)


def here(args: ResourceValidationArgs, report: ReportViolation) -> None:
    if args.resource_type == "tiny:index:Note" and args.props.get("place") != "here":
        report(f"a note must be here, but is {args.props.get('place')}")


PolicyPack(
    name="notes",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        ResourceValidationPolicy(name="here", description="Notes must be here.", validate=here)
    ],
)
