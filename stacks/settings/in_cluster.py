"""Settings of the stacks inside a cluster: its platform for AI work, and a team's workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, create_model

from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.addons.addon import Addon
from falaj.components.kubernetes.batch_inference import BatchInferenceArgs
from falaj.components.kubernetes.federated_training import FederatedTrainingArgs
from falaj.components.kubernetes.gateway import GatewayArgs
from falaj.components.kubernetes.gpu_queues import GpuQueuesArgs
from falaj.components.kubernetes.inference_service import InferenceServiceArgs
from falaj.components.kubernetes.pipeline import PipelineArgs
from falaj.components.kubernetes.platform import PlatformArgs
from falaj.components.kubernetes.residency import ResidencyArgs
from falaj.components.kubernetes.storage_classes import StorageClassesArgs
from falaj.components.kubernetes.sweep import SweepArgs
from falaj.components.kubernetes.tenant import TenantArgs
from falaj.components.kubernetes.training.arguments import PublishArgs
from falaj.components.kubernetes.training_job import TrainingJobArgs
from falaj.components.kubernetes.workspace import WorkspaceArgs
from falaj.components.specification.arguments import with_defaults
from falaj.components.specification.limits import TENANT, WORKLOAD
from falaj.stacks.settings.cloud import InClusterSettings
from falaj.stacks.settings.derived import component_section, nested_section
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.shapes import keys_of

# The platform: add-ons, queues, tenants, admission.

TenantName = Annotated[str, TENANT]


def _sentence(addon: Addon) -> str:
    return f"{addon.summary[:1].upper()}{addon.summary[1:]}."


if TYPE_CHECKING:
    AddonsSection = GatewaySection = InstallationSection = QueueSection = Section
    ResidencySection = StorageSection = TenantSection = Section
else:
    GatewaySection = component_section(GatewayArgs, "gateway")
    AddonsSection = create_model(
        "addons",
        __base__=Section,
        __doc__="Add-ons by name: false leaves one out, true or its options install it.",
        **{
            name.replace("-", "_"): (
                bool | nested_section(addon.options) | None,
                Field(
                    None,
                    alias=name,
                    description=_sentence(addon),
                ),
            )
            for name, addon in ADDONS.items()
        },
    )
    InstallationSection = component_section(PlatformArgs, "installation", addons=AddonsSection)
    QueueSection = component_section(GpuQueuesArgs, "queues")
    ResidencySection = component_section(ResidencyArgs, "residency")
    StorageSection = component_section(StorageClassesArgs, "storage")
    TenantSection = component_section(TenantArgs, "tenant")


def asked_addons(installation: Section) -> dict[str, Any] | None:
    """What the stack says of each add-on by its name, as `Platform` takes it; None: nothing."""
    addons: AddonsSection | None = getattr(installation, "addons", None)
    if addons is None:
        return None
    given = addons.model_dump(exclude_none=True)
    return {
        key.name: given[key.attribute] for key in keys_of(type(addons)) if key.attribute in given
    }


class PlatformSettings(InClusterSettings):
    """Everything that a stack may say that makes a cluster ready for workloads."""

    blueprint: Literal["platform", "cluster"]
    """What the stack makes: here what a cluster needs for workloads. ``platform`` on a cluster of
    AWS or Azure; of an existing one this is its ``cluster``."""
    installation: InstallationSection
    """Arguments of `Platform`: its add-ons and where the API server is."""
    storage: StorageSection | None = None
    """Arguments of `StorageClasses`. Default: the cluster's classes are left as they are."""
    queues: QueueSection | None = None
    """Arguments of `GpuQueues`. Default: no queues."""
    gateway: GatewaySection | None = None
    """Arguments of `Gateway`, whose name is ``falaj``. Default: no gateway."""
    residency: ResidencySection
    """Arguments of `Residency`."""
    tenants: dict[TenantName, TenantSection] = Field(default_factory=dict)
    """Arguments of `Tenant`, by the tenants' names."""


# A team's workloads: training jobs, sweeps, federated training, batch inference, pipelines,
# inference services, workspaces.

WorkloadName = Annotated[str, WORKLOAD]

if TYPE_CHECKING:
    BatchSection = FederatedSection = InferenceSection = PipelineSection = Section
    SweepSection = TrainingSection = WorkspaceSection = Section
else:
    BatchSection = component_section(BatchInferenceArgs, "batchInferences")
    FederatedSection = component_section(FederatedTrainingArgs, "federatedTrainings")
    InferenceSection = component_section(InferenceServiceArgs, "inferenceServices")
    PipelineSection = component_section(PipelineArgs, "pipelines")
    SweepSection = component_section(SweepArgs, "sweeps")
    TrainingSection = component_section(TrainingJobArgs, "trainingJobs")
    WorkspaceSection = component_section(WorkspaceArgs, "workspaces")


class WorkloadsSettings(InClusterSettings):
    """Everything that a ``workloads`` stack may say; its tenant is the team's."""

    blueprint: Literal["workloads"]
    """What the stack makes: here a team's jobs, services and workspaces in a cluster."""
    training_jobs: dict[WorkloadName, TrainingSection] = Field(default_factory=dict)
    """Arguments of `TrainingJob`, by name."""
    sweeps: dict[WorkloadName, SweepSection] = Field(default_factory=dict)
    """Arguments of `Sweep`, by name."""
    federated_trainings: dict[WorkloadName, FederatedSection] = Field(default_factory=dict)
    """Arguments of `FederatedTraining`, by name: the coordinator or a site of a federation."""
    batch_inferences: dict[WorkloadName, BatchSection] = Field(default_factory=dict)
    """Arguments of `BatchInference`, by name."""
    pipelines: dict[WorkloadName, PipelineSection] = Field(default_factory=dict)
    """Arguments of `Pipeline`, by name: a training that is started by the clock, new data, or by
    hand, and what becomes of its model."""
    inference_services: dict[WorkloadName, InferenceSection] = Field(default_factory=dict)
    """Arguments of `InferenceService`, by name."""
    workspaces: dict[WorkloadName, WorkspaceSection] = Field(default_factory=dict)
    """Arguments of `Workspace`, by name."""

    @property
    def awaited(self) -> dict[str, Trainer]:
        """What publishes the first version of services that have none yet, by their names.

        Such a service follows an alias, its ``versions`` are left out, and a training of the same
        stack publishes its model under that alias.
        """
        trainers = {
            str(published): Trainer(kind, name)
            for kind, sections in (
                ("pipeline", self.pipelines), ("training job", self.training_jobs)
            )
            for name, section in sections.items()
            if (published := self.publication(section)) is not None
        }  # fmt: skip
        services = {name: each.model_dump() for name, each in self.inference_services.items()}
        return {
            name: trainers[each["canary"]["model"]]
            for name, each in services.items()
            if each["versions"] is None
            and each["canary"] is not None
            and each["canary"]["model"] in trainers
        }

    @staticmethod
    def publication(training: BaseModel) -> Publication | None:
        """What a training publishes; None where it doesn't.

        Args:
            training: the section of a training job or of a pipeline.
        """
        given = training.model_dump(exclude_none=True).get("publish")
        if given is None:
            return None
        found = with_defaults(PublishArgs, given)
        return Publication(found["model"], found["alias"])


class Publication(NamedTuple):
    """A model, and the alias that stands for what was published last."""

    model: str
    alias: str

    def __str__(self) -> str:
        return f"{self.model}@{self.alias}"


class Trainer(NamedTuple):
    """What publishes a model: a workload, as `falaj.stacks.command.pods` calls it."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
