"""Marks of pipelines' objects, by which starters, admission and people find them."""

from typing import Final

LABEL: Final = "falaj.io/pipeline"
"""Of a pipeline's template and of its runs: its name."""
TEMPLATE_LABEL: Final = "falaj.io/pipeline-template"
"""Of the template alone: ``true``."""
START_RIGHT: Final = ("falaj.io", "pipelines", "start")
"""Group, resource and verb of a right that no API has: who holds it for a pipeline's name is its
starter, and makes runs with the secrets that its template uses. Kubernetes lets nobody give a
right who doesn't hold it."""
ACCOUNT_ENDING: Final = "-pipeline"
"""Of the starter's account, behind the pipeline's name."""
REQUESTS_ENDING: Final = f"{ACCOUNT_ENDING}-drift"
"""Of the ConfigMap in which who watches drift asks for a run, behind the pipeline's name."""
WATCH_ENDING: Final = "-watch"
"""Of the account of who watches an inference service's drift, behind the service's name."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUEUE_NOTE: Final = "falaj.io/queue"
"""Annotation of the template: the queue of its runs."""
DATASET_NOTE: Final = "falaj.io/dataset"
"""Annotation of pods: the snapshot that they train on; of the template's, which they may."""
RUN_NOTES: Final = ("falaj.io/data-digest", "falaj.io/reason")
"""Annotations that a run has beside the template's: of which data, and why."""
