"""What starts runs of a pipeline starts what its template says, and nothing else.

The starter's account may make JobSets, and so could have any program run by any account of its
namespace. The template is there as an object: a JobSet that nobody runs. What the account makes is
compared with it as the API server would store both, so that defaults of the API server and of the
controllers don't differ. The packs judge the template where it is declared.

The API server compares with each template of the namespace in its turn, of which the account's is
one: `Pipeline` gives the account its rights after its template, and takes them before. An account
whose template is gone, while another one is left, would be held by nothing, and its runs have the
secrets that its template uses (`secrets`): so that only who may read secrets removes a template.

A run is owned by the account that makes it, so that it goes with its pipeline. The account can own
nothing but its own runs: its UID is that of the token that the API server was shown.
"""

from dataclasses import replace

from falaj.components.catalogue.pipelines import (
    ACCOUNT_ENDING,
    DATASET_NOTE,
    LABEL,
    QUEUE_LABEL,
    QUEUE_NOTE,
    RUN_NOTES,
    TEMPLATE_LABEL,
)
from falaj.components.kubernetes.admission.policy import (
    ACCOUNTS,
    ASKER,
    Check,
    ClusterScope,
    Compared,
    Policy,
    Target,
    joined,
    literal,
    texts,
    when,
)
from falaj.components.kubernetes.admission.secrets import CONTROLLERS, MAY_READ

_OWN = (
    f'{ASKER} == {literal(ACCOUNTS)} + request.namespace + ":" + params.metadata.name + '
    f"{literal(ACCOUNT_ENDING)}"
)
_IS_TEMPLATE = f'metadata.?labels[?{literal(TEMPLATE_LABEL)}].orValue("") == "true"'
#: What controllers decide of a JobSet, not who makes it.
_OTHERS = ("suspend", "managedBy")
_JOBS = "replicatedJobs"
_SNAPSHOT = "^[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*$"


def policies(_: ClusterScope) -> tuple[Policy, ...]:
    """Runs of pipelines, by the accounts that start them."""
    own = {"own": _OWN, "new": "dyn(object)", "old": "dyn(params)"}
    target = Target("jobset.x-k8s.io", "v1alpha2", ("jobsets",))
    of_starters = {
        "of-a-starter": f"{ASKER}.startsWith({literal(ACCOUNTS)}) && "
        f"{ASKER}.endsWith({literal(ACCOUNT_ENDING)})"
    }
    return (
        Policy(
            "pipeline-starters",
            (target,),
            (
                Check(
                    "cluster-pipeline-starter",
                    joined((_elsewhere(), _unmarked(), _changed())),
                    "the account of a pipeline makes what isn't a run",
                    f"JobSets of its namespace with the label {LABEL}",
                    "look who uses the account",
                ),
            ),
            conditions=of_starters,
        ),
        Policy(
            "pipeline-templates",
            (replace(target, operations=("UPDATE", "DELETE")),),
            (
                Check(
                    "cluster-pipeline-template",
                    f'(request.operation == "DELETE" || !(object.{_IS_TEMPLATE}) '
                    "? [oldObject.metadata.name] : [])",
                    "who asks may not read the secrets of the namespace, and takes away what runs "
                    "of a pipeline are compared with",
                    f"JobSets without the label {TEMPLATE_LABEL}",
                    "have the platform's owners remove the pipeline",
                    permitted=f'(request.operation == "DELETE" && {CONTROLLERS}) || {MAY_READ}',
                ),
            ),
            conditions={"a-template": f"oldObject.{_IS_TEMPLATE}"},
        ),
        Policy(
            "pipeline-runs",
            # Not changes, which no starter makes: where the template is gone those of controllers
            # would be refused, and a run that is removed after its days would stay for good.
            (replace(target, operations=("CREATE",)),),
            (
                Check(
                    "cluster-pipeline-run",
                    joined(
                        f"(variables.own ? {each} : [])"
                        for each in (_names(), _labels(), _notes(), _spec(), _jobs())
                    ),
                    "the account of a pipeline makes something else than a run of it",
                    "its template under another number, for a snapshot that the template names",
                    "look who uses the account",
                ),
            ),
            own,
            of_starters,
            # By the label, which starters' objects need to have.
            compared=Compared("jobset.x-k8s.io/v1alpha2", "JobSet", TEMPLATE_LABEL, LABEL),
        ),
    )


def _unmarked() -> str:
    """Without the label nothing is compared, and neither is a template."""
    labels = "object.metadata.?labels.orValue({})"
    return joined((
        when(f"!({literal(LABEL)} in {labels})", literal(f"without {LABEL}")),
        when(f"{literal(TEMPLATE_LABEL)} in {labels}", literal(TEMPLATE_LABEL)),
    ))  # fmt: skip


def _changed() -> str:
    return when('request.operation != "CREATE"', literal("a run that is there"))


def _elsewhere() -> str:
    here = f'{ASKER}.startsWith({literal(ACCOUNTS)} + request.namespace + ":")'
    return when(f"!({here})", literal("in another namespace"))


def _names() -> str:
    """A run's name is the template's and its number; its account owns it, and nobody keeps it."""
    name, of = "object.metadata.name", "params.metadata.name"
    numbered = (
        f'{name}.startsWith({of} + "-") && '
        f'{name}.substring(size({of}) + 1).matches("^[1-9][0-9]{{0,6}}$")'
    )
    owners = "object.metadata.?ownerReferences.orValue([])"
    # A controller's, Kueue would take for the job of another one, which waits for no quota.
    owned = " && ".join(
        (
            'o.apiVersion == "v1" && o.kind == "ServiceAccount"',
            f"o.name == {of} + {literal(ACCOUNT_ENDING)}",
            'o.uid == request.userInfo.?uid.orValue("")',
            "!o.?controller.orValue(false) && o.?blockOwnerDeletion.orValue(false)",
        )
    )
    return joined((
        when(f"!({numbered})", literal("its name")),
        when(f"size({owners}) != 1 || !{owners}.all(o, {owned})", literal("its owner")),
        when("size(object.metadata.?finalizers.orValue([])) > 0", literal("its finalizers")),
    ))  # fmt: skip


def _labels() -> str:
    new, old = (f"variables.{each}.metadata.?labels.orValue({{}})" for each in ("new", "old"))
    marks = (QUEUE_LABEL, TEMPLATE_LABEL)
    queue = f'params.metadata.?annotations.orValue({{}})[?{literal(QUEUE_NOTE)}].orValue("")'
    return joined((
        _added(new, old, marks),
        _gone(new, old, marks),
        when(f"{new}[?{literal(QUEUE_LABEL)}].orValue(\"\") != {queue}", literal(QUEUE_LABEL)),
        when(f"{new}[?{literal(LABEL)}].orValue(\"\") != params.metadata.name", literal(LABEL)),
    ))  # fmt: skip


def _notes() -> str:
    new, old = (f"variables.{each}.metadata.?annotations.orValue({{}})" for each in ("new", "old"))
    return _added(new, old, RUN_NOTES)


def _added(new: str, old: str, but: tuple[str, ...]) -> str:
    """Keys of a map that another one lacks or has otherwise, as a list of texts."""
    return f"{new}.filter(k, !(k in {texts(but)}) && !(k in {old} && {old}[k] == {new}[k]))"


def _gone(new: str, old: str, but: tuple[str, ...]) -> str:
    """Keys that only the other one has, likewise."""
    return f"{old}.filter(k, !(k in {texts(but)}) && !(k in {new}))"


def _differing(new: str, old: str, but: tuple[str, ...]) -> str:
    """Keys of two maps that only one has, or that differ, as a list of texts."""
    return f"({_added(new, old, but)} + {_gone(new, old, but)})"


def _spec() -> str:
    return _differing("variables.new.spec", "variables.old.spec", (*_OTHERS, _JOBS))


def _jobs() -> str:
    """Its jobs: each is one of the template's, but for the snapshot that its pods train on."""
    pod = "template.spec.template"
    same = (
        f"size({_differing('r', 't', ('template',))}) == 0",
        f"size({_differing('r.template', 't.template', ('spec',))}) == 0",
        f"size({_differing('r.template.spec', 't.template.spec', ('template',))}) == 0",
        f"size({_differing(f'r.{pod}', f't.{pod}', ('metadata',))}) == 0",
        f"size({_differing(f'r.{pod}.metadata', f't.{pod}.metadata', ('annotations',))}) == 0",
        f"size({_differing(_notes_of('r'), _notes_of('t'), (DATASET_NOTE,))}) == 0",
        _snapshot(),
    )
    jobs = {each: f"variables.{each}.spec.{_JOBS}" for each in ("new", "old")}
    known = f"{jobs['old']}.exists(t, t.name == r.name && {' && '.join(same)})"
    return joined((
        f"{jobs['new']}.filter(r, !({known})).map(r, string(r.name))",
        when(f"size({jobs['new']}) != size({jobs['old']})", literal("the number of its jobs")),
        when(_several(jobs["new"]), literal("a snapshot for each of its jobs")),
    ))  # fmt: skip


def _notes_of(job: str) -> str:
    return f"{job}.template.spec.template.metadata.?annotations.orValue({{}})"


def _named(job: str) -> str:
    """The snapshot that a job's pods train on; empty where it has data of its own."""
    return f'{_notes_of(job)}[?{literal(DATASET_NOTE)}].orValue("")'


def _several(jobs: str) -> str:
    """Whether two jobs name different snapshots: what is trained on has to be what is judged."""
    names = f'{jobs}.map(r, {_named("r")}).filter(n, n != "")'
    return f"{names}.exists(n, n != {names}[0])"


def _snapshot() -> str:
    """The template's own, or one whose name begins as it says, with ``*`` at its end."""
    new, old = _named("r"), _named("t")
    begins = (
        f'{old}.endsWith("*") && {new}.startsWith({old}.substring(0, size({old}) - 1)) && '
        f"{new}.matches({literal(_SNAPSHOT)})"
    )
    return f"({new} == {old} || ({begins}))"
