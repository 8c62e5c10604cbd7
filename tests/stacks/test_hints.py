"""Refusals whose own words don't say what to do are told with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from falaj.engine.backend import salt_of
from falaj.stacks.command import operation
from falaj.stacks.command.call import Call
from falaj.stacks.command.hints import hints
from falaj.stacks.command.lifecycle import not_finished
from falaj.stacks.errors import StackError
from tests.stacks.bare_stacks import bare_stack, use_own_backend

REFUSED = (
    "error: creating EKS Cluster (acme-dev-cluster): operation error EKS: CreateCluster, https "
    "response error StatusCode: 400, InvalidParameterException: Access denied to KMS key "
    "arn:aws:kms:me-central-1:000000000000:key/1 due to revoked grant"
)


def test_a_key_that_eks_may_not_use_yet_is_told_with_what_to_do() -> None:
    (hint,) = hints(f"updating\n  {REFUSED}\n")
    assert "run this again in a minute" in hint
    assert "kms:CreateGrant and kms:DescribeKey" in hint
    assert hints("error: VpcLimitExceeded") == []


@pytest.mark.slow
def test_a_file_with_another_salt_than_the_state_is_told_which_line_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_own_backend(tmp_path, monkeypatch)
    pulumi = bare_stack(tmp_path, "main")
    stack = pulumi.stack
    file = stack.path
    pulumi.ensure_stack()
    pulumi.capture(["config", "set", "--secret", "shop:x", "hush", "-s", "main"])
    good = file.read_text()
    strange = re.sub(r"(?<=encryptionsalt: ).*", f"v1:{'A' * 11}=:v1:{'A' * 16}:{'A' * 36}", good)
    file.write_text(strange)
    with pytest.raises(StackError, match="incorrect passphrase") as refused:
        pulumi.capture(["config", "get", "shop:x", "-s", "main"])
    line = re.search(r"(?m)^  (encryptionsalt: .*)$", str(refused.value))
    assert line is not None
    outcome = operation.Outcome(
        status=255, changes={}, made={}, violations=0, was_interrupted=False, seconds=0.0,
        printed="error: incorrect passphrase",
    )  # fmt: skip
    assert not_finished(Call(stack, sandbox=False), "up", outcome) == 255
    assert line[1] in "".join(capsys.readouterr())
    file.write_text(re.sub(r"(?m)^encryptionsalt: .*$", line[1], strange))
    assert pulumi.capture(["config", "get", "shop:x", "-s", "main"]).strip() == "hush"
    # Where both are the same, the passphrase itself is another.
    monkeypatch.setitem(pulumi.environment, "PULUMI_CONFIG_PASSPHRASE_FILE", str(file))
    with pytest.raises(StackError, match="incorrect passphrase") as refused:
        pulumi.capture(["config", "get", "shop:x", "-s", "main"])
    assert "encryptionsalt" not in str(refused.value)


@pytest.mark.parametrize("said", ["", "{", "[]", '{"checkpoint": {"latest": null}}', "null"])
def test_a_state_that_says_no_salt_has_none(tmp_path: Path, said: str) -> None:
    assert salt_of(tmp_path.as_uri(), "shop", "main") is None
    (folder := tmp_path / ".pulumi" / "stacks" / "shop").mkdir(parents=True)
    (folder / "main.json").write_text(said)
    assert salt_of(tmp_path.as_uri(), "shop", "main") is None
    number = {"checkpoint": {"latest": {"secrets_providers": {"state": {"salt": 7}}}}}
    (folder / "main.json").write_text(json.dumps(number))
    assert salt_of(tmp_path.as_uri(), "shop", "main") is None
    assert salt_of("s3://bucket", "shop", "main") is None
