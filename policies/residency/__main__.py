"""The pack `residency`, as `pulumi up --policy-pack policies/residency` runs it."""

from pathlib import Path

from falaj.policies.server.serving import serve

if __name__ == "__main__":
    serve(Path(__file__).resolve().parent)
