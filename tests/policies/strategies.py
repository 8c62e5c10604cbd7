"""Values that a resource's properties may have, however odd."""

from __future__ import annotations

from hypothesis import strategies as st

from falaj.policies.model import REDACTED, UNKNOWN

TELLING = (
    "eu-west-1",
    "me-central-1",
    "UAE North",
    "0.0.0.0/0",
    "::/0",
    "*",
    "-1",
    "{",
    "[]",
    "true",
    "arn:aws:s3:::b",
    "arn:aws:kms:eu-west-1:123456789012:key/x",
    "https://example.com/x?y=1",
    '{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}',
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=30)
    | st.sampled_from(TELLING)
    | st.sampled_from([UNKNOWN, REDACTED])
)


def values(keys: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """Nested values whose mappings have these keys."""
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
