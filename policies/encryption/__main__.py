"""The pack `encryption`, as `pulumi up --policy-pack policies/encryption` runs it."""

from pathlib import Path

from falaj.policies.server.serving import serve

if __name__ == "__main__":
    serve(Path(__file__).resolve().parent)
