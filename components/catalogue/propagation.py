"""How long a cloud takes until what was granted holds everywhere."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "FALAJ_PROPAGATION_SECONDS"
"""Of the environment: seconds in place of those that a grant is given, and of those between two
tries; the sandbox, where all takes effect at once, is run with 0."""

AWS_SECONDS: Final = 30.0
"""What a policy of IAM takes until the services that ask for it see it, with room to spare: IAM
promises no time, and EKS refuses a key of which it doesn't know yet that its role may use it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency
and https://github.com/hashicorp/terraform-provider-aws/issues/49247
"""
