"""Which commands of the documents are run by which test; the documents say what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Commands within sentences and tables, by the scenario whose test runs them as they stand there.
MENTIONED: Final[Mapping[str, tuple[str, ...]]] = {
    "local": (
        "make up", "make demo", "make status", "make token", "make logs", "make preview",
        "make rollback", "make shell", "make down", "make new STACK=shop", "pulumi preview",
        "pulumi up --yes", "pulumi stack output", "falaj token --scope observe --minutes 10",
        "falaj completion bash",
    ),
    "preview": (
        "falaj preview --details", "falaj preview --costs", "falaj preview --unknown-prices FILE",
    ),
    "wheel": ("falaj new shop", "falaj up", "falaj check"),
    "table": ("make up STACK=shop",),
    "template": ("falaj new --list", "pulumi new FOLDER-OF-A-TEMPLATE"),
    "onprem": ("falaj images list",),
    "packs": ("falaj check --live",),
    "report": ("make report",),
    "reference": (
        ".venv/bin/falaj --help", ".venv/bin/falaj settings", ".venv/bin/falaj policies",
        ".venv/bin/falaj policies --coverage", ".venv/bin/falaj policies --suppress checkov",
        ".venv/bin/falaj settings gpuPools",
    ),
    "docs": ("make help", "make docs"),
    "pydoc": (
        ".venv/bin/python -m pydoc falaj.components.azure.gpu_node_pool",
        ".venv/bin/python -m pydoc falaj.policies.model",
    ),
    "audit": (".venv/bin/python -m falaj.workloads.inference audit --logs DIR",),
}  # fmt: skip
_MODELS: Final = "tests/stacks/models run it between registries of theirs"
#: What `.ci/run` itself runs, or what is measured or needs a machine that no test has; by command,
#: what runs it instead.
ELSEWHERE: Final[Mapping[str, str]] = {
    "make test": ".ci/run",
    "make test-all": ".ci/run",
    "make lint": ".ci/run",
    "make environment-dev": "what `make lint` begins with, which .ci/run runs",
    "make format": "changes what ruff says; .ci/run asks that it says nothing",
    "make test-fast": "a part of what .ci/run runs",
    "make test-cluster": "a part of what .ci/run runs",
    "make test-gpu": "a machine with a GPU",
    "make bench-gpu": "a machine with a GPU",
    "python -m falaj.workloads.federation": "tests/workloads/federation",
    "openssl x509 -in tls.crt -noout -pubkey | openssl pkey -pubin -outform der | sha256sum": (
        "tests/workloads/federation/test_secure_sessions.py"
    ),
    "make test-own-models": "fetches libraries of models that no other test needs",
    "uv pip compile --generate-hashes --no-emit-index-url -c requirements/base.txt "
    "-c requirements/local.txt team.in -o my_models/requirements.txt": (
        "`make lock` writes requirements/own-models.txt by it, which `make test-own-models` takes"
    ),
    "make test-triton": "fetches a server of NVIDIA's that no other test needs",
    "make bench-peers": "fetches others' servers, and judges next to nothing",
    **dict.fromkeys(
        (
            "falaj images build",
            "falaj images build --openvino",
            "falaj images build --openvino falaj-inference",
        ),
        "tests/stacks/images have its recipe; a build needs a builder and its bases",
    ),
    **{
        f"python -m falaj.workloads.parameter_server{role}": "tests/workloads/parameter_server"
        for role in ("", " server", " worker")
    },
    "make test-alerts": "tests/components/kubernetes run its module",
    ".venv/bin/pytest -m hypothesis --hypothesis-profile=search": "make test-all draws fewer",
    "python -m falaj.workloads.training run": "tests/workloads/training run it",
    "python -m falaj.workloads.training tune": "tests/workloads/training/test_tuned_runs.py",
    **{
        f"python -m falaj.workloads.training track{options}": "tests/workloads/training run it"
        for options in ("", " --run FOLDER --tracking URL")
    },
    "python -m falaj.workloads.training run --adopt": "tests/workloads/training/test_adopt.py",
    "python -m falaj.workloads.training features": "tests/workloads/training run it",
    "falaj features FILE --output FILE": "tests/stacks/test_feature_tables.py runs it",
    "make bench": "takes half an hour and judges nothing",
    "make bench BENCH_SIZES=100x800,1000x5000": "takes half an hour and judges nothing",
    "make lock": "asks the package index for newer versions",
    "kubectl --namespace kube-system rollout restart deployment coredns": "a cluster on Azure",
    **dict.fromkeys(
        (
            "falaj token --scope predict:price",
            "falaj token --model price",
            "falaj demo --model price",
            "falaj predict FILE --model price",
            "falaj rollback --model price",
            "falaj publish REGISTRY --model price",
        ),
        "tests/stacks/test_several_models.py runs it",
    ),
    "falaj open --model price": "tests/stacks/page/test_page_models.py looks at its page",
    "falaj cluster up --real 2": "what `make cluster REAL=2` runs",
    "falaj cluster load": "what `make cluster REAL=2 LOAD=1` runs",
    "falaj cluster bring": "tests/cluster/real run it by what the page has one type",
    "falaj cluster bring TENANT --keyring FOLDER": "tests/cluster/real bring all by it",
    "falaj cluster load kueue jobset trainer": "tests/stacks/test_cluster_load.py run it",
    "python -m falaj.workloads.registry keyring pack --path RING": (
        "tests/components/kubernetes/test_serving_pods_run.py runs it, as a replica's pods have it"
    ),
    **dict.fromkeys(
        ("falaj status", "falaj logs", "falaj logs rates", "falaj logs credit", "falaj shell"),
        "tests/cluster/real/test_platform_usage.py runs it",
    ),
    **dict.fromkeys(
        ("falaj pipelines list", "falaj pipelines status credit", "falaj pipelines run credit"),
        "tests/stacks/test_pipelines_command.py runs it",
    ),
    **dict.fromkeys(
        (
            "falaj runs",
            "falaj runs list",
            "falaj runs show",
            "falaj runs show RUN",
            "falaj runs compare",
            "falaj runs compare RUN RUN",
        ),
        "tests/stacks/test_runs_command.py",
    ),
    **dict.fromkeys(
        (
            "falaj runs export",
            "falaj runs export 1 --output FOLDER",
            "falaj runs export RUN --output FOLDER",
        ),
        "tests/stacks/test_local_text.py runs it",
    ),
    "python -m falaj.workloads.training export": "tests/workloads/training/test_llama.py runs it",
    **dict.fromkeys(
        (
            "falaj sweep",
            "falaj sweep --search learningRate=1e-3..3e-2:log --search width=8..24",
            "falaj sweep --search 'options.width=16|32'",
            "falaj sweep --search width=8|16|32",
        ),
        "tests/stacks/test_sweep_command.py",
    ),
    "kubectl port-forward": "tests/cluster/real/test_machines.py forwards a port",
    **dict.fromkeys(
        (
            "make open",
            "falaj open",
            "falaj open --stack NAME",
            "falaj open --no-browser",
            "falaj open --port 8080",
        ),
        "tests/stacks/page/test_open_command.py run it until they end it",
    ),
    "falaj refresh": "what `make refresh` runs",
    "falaj sandbox add": "the block of the scenario sandbox has it with a zone of names",
    "falaj sandbox lose": "tests/sandbox/test_sandbox_command.py runs it",
    "falaj sandbox reset": "tests/sandbox/test_sandbox_command.py runs it",
    "falaj sandbox fault add": "tests/stacks/test_azure_stacks.py runs it",
    "pulumi import": "a real subscription, whose plans are there already",
    "falaj preflight": "the block of the scenario preflight has it with its stack",
    "kubectl --namespace monitoring port-forward service/monitoring-alertmanager 9093": (
        "a kubelet, and pods of a chart that can't be had here"
    ),
    "kubectl get services --all-namespaces --field-selector spec.type=LoadBalancer": (
        "a cluster on AWS, whose balancers they are"
    ),
    "kubectl drain": "named for comparison; no page says to type it",
    "kubectl get nodes -L repair.falaj.io/state": "tests/cluster/test_node_repair.py reads it",
    "kubectl get daemonsets --namespace image-prefetch": (
        "tests/cluster/test_image_prefetch.py reads it"
    ),
    "kubectl get events --namespace image-prefetch": "a kubelet, which writes them",
    "falaj images mirror --to REGISTRY": "tests/stacks/images run it against a registry of theirs",
    "falaj images pin": "tests/stacks/images run it against a registry of theirs",
    "falaj predict FILE...": "tests/stacks/test_predict.py",
    "falaj predict": "tests/stacks/test_predict.py",
    "falaj predict customers.csv --stack NAME --keep id": "tests/stacks/test_predict.py",
    "falaj unseal": "tests/stacks/test_predict.py",
    "falaj unseal FILE --output customers.predictions.csv --stack NAME": (
        "tests/stacks/test_predict.py"
    ),
    **dict.fromkeys(("falaj watch", "falaj watch --once"), "tests/stacks/watching run it"),
    **dict.fromkeys(
        (
            "falaj shadow",
            "falaj shadow start VERSION",
            "falaj shadow stop",
            "falaj shadow promote",
        ),
        "tests/stacks/test_shadow_command.py",
    ),
    **dict.fromkeys(
        (
            "falaj experiment",
            "falaj experiment start VERSION",
            "falaj experiment stop",
            "falaj experiment promote",
        ),
        "tests/stacks/test_experiment_command.py",
    ),
    "falaj pipelines status": "tests/stacks/test_pipelines_command.py",
    (
        ".venv/bin/pytest tests/components/local tests/stacks/test_stated_once.py "
        "tests/stacks/test_every_local_setting.py"
    ): "what `make test` runs",
    "falaj rollback": "what `make rollback` runs",
    "falaj publish REGISTRY": _MODELS,
    "falaj publish --pin": _MODELS,
    "falaj publish REGISTRY --stack NAME --for STACK --pin": _MODELS,
    "falaj models push REGISTRY MODEL --from FOLDER --keyring KEYRING": _MODELS,
    "falaj models list REGISTRY": _MODELS,
    "falaj models show REGISTRY MODEL": _MODELS,
    "falaj models verify REGISTRY MODEL --verify-key FILE": _MODELS,
    "falaj models pull REGISTRY MODEL --to FOLDER --verify-key FILE": _MODELS,
    "falaj models promote REGISTRY MODEL --version N --keyring KEYRING": _MODELS,
    "falaj models rollback REGISTRY MODEL --keyring KEYRING": _MODELS,
    "falaj models aliases REGISTRY MODEL --verify-key FILE": _MODELS,
    "falaj models promote … --version N --renew": _MODELS,
    "falaj models pin REGISTRY MODEL --alias production --verify-key FILE --stack NAME": _MODELS,
    "falaj models pin": _MODELS,
    "falaj models follow": _MODELS,
    "falaj models follow --stack NAME": _MODELS,
    "falaj models promote --why": _MODELS,
    "falaj models aliases REGISTRY MODEL --verify-key FILE --all": _MODELS,
    "falaj models pin --alias candidate": _MODELS,
    "falaj models copy SOURCE DESTINATION": _MODELS,
    "falaj models": _MODELS,
    "falaj models copy": _MODELS,
    "falaj models push": _MODELS,
    "falaj models pull": _MODELS,
    "python -m falaj.workloads.registry import --from FOLDER": _MODELS,
    ".venv/bin/python -m falaj.workloads.inference revoke --subject local-operator --list FILE": (
        "tests/workloads/inference/test_revocation.py"
    ),
    "python -m falaj.workloads.registry keyring rotate --distrust": (
        "tests/workloads/registry/test_rotation_of_signing.py"
    ),
    "python -m falaj.workloads.registry deliver": "tests/workloads/registry/test_delivery.py",
    "python -m falaj.workloads.optimization": "tests/workloads/optimization/test_optimise.py",
    "python -m falaj.workloads.registry import --repository": (
        "tests/workloads/registry/test_remote.py"
    ),
    "pulumi stack export": "what `falaj draw --now` calls",
    "pulumi preview --json --show-sames": "what `falaj draw` calls",
    "pulumi up": "what `make up` calls",
    "pulumi install": "asks a package index: tests/engine/test_interpreter.py",
    "pulumi refresh": "what `make refresh` calls",
    "python -m falaj.workloads.training": "what pods run: tests/components/kubernetes",
    "openssl rand -hex 32": "tests/components/kubernetes/test_workspace_runs.py has such a token",
    (
        "kubectl --namespace acme-training port-forward pod/alice-workspace 8443"
    ): "tests/cluster/test_workspaces.py asks the API server whether the person may",
    (
        "kubectl --namespace acme-training get secret alice-workspace-token "
        "-o jsonpath={.data.token}"
    ): "tests/cluster/test_workspaces.py asks the API server as the person",
    ".venv/bin/pre-commit install": "tests/documents/test_hooks.py installs it in a repository",
    ".venv/bin/pytest tests/policies/rules tests/policies/controls": "a part of what .ci/run runs",
    ".venv/bin/pytest tests/components/kubernetes/test_residency.py": (
        "a part of what .ci/run runs"
    ),
    ".venv/bin/pytest tests/cluster/test_admission_parity.py": "a part of what .ci/run runs",
    ".venv/bin/python -m tests.components.kubernetes.platforms": (
        "writes the files with which tests/components/kubernetes/test_platform_values.py compare"
    ),
    "python3 engine/environment.py --extra openvino": (
        "a part of what `make environment-dev` runs, in whose environment the tests run"
    ),
    ".venv/bin/uv pip install FOLDER": (
        "installs the reader's own package; tests/policies/test_team_rules.py offer its rules"
    ),
    ".venv/bin/pytest tests/components/specification tests/components/test_cloud_parity.py": (
        "a part of what .ci/run runs"
    ),
    ".venv/bin/pytest tests/components/kubernetes": "a part of what .ci/run runs",
    ".venv/bin/pytest tests/documents": "a part of what .ci/run runs",
    ".venv/bin/falaj settings --schema stacks/settings/stack.schema.json": (
        "tests/stacks compare the file with what the command writes"
    ),
    "pip install 'dist/falaj-0.1.0-py3-none-any.whl[local,azure]'": (
        "tests/newcomer/test_wheel.py install it with uv, and pinned versions"
    ),
    "uv tool install": "tests/newcomer/test_wheel.py have it with the wheel that they make",
    "pulumi package add /path/to/falaj/components/aws": (
        "generates a package by the vendor's plugins: tests/components/aws read the schema instead"
    ),
}
