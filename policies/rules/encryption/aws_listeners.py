"""What takes callers in on AWS, by every name that it had in the SDK."""

from __future__ import annotations

from typing import Final

_MODULES: Final = ("lb", "alb", "elasticloadbalancingv2", "applicationloadbalancing")
LISTENERS: Final = frozenset(f"aws:{each}/listener:Listener" for each in _MODULES)
LISTENER_RULES: Final = frozenset(f"aws:{each}/listenerRule:ListenerRule" for each in _MODULES)
TARGET_GROUPS: Final = frozenset(f"aws:{each}/targetGroup:TargetGroup" for each in _MODULES)
#: Classic load balancers.
CLASSIC: Final = frozenset((
    "aws:elb/loadBalancer:LoadBalancer",
    "aws:elasticloadbalancing/loadBalancer:LoadBalancer",
))  # fmt: skip
DISTRIBUTIONS: Final = frozenset((
    "aws:cloudfront/distribution:Distribution",
    "aws:cloudfront/multitenantDistribution:MultitenantDistribution",
))  # fmt: skip
#: Where distributions describe servers of one's own that they fetch from; types differ in it.
ORIGINS: Final = ("origins.customOriginConfig", "origins.customOriginConfigs")
