"""Which failures are worth another attempt: those of machines, never those of the program.

Statuses are those of ``workloads/statuses.py``. A program of the team's own should end
likewise: 1 and 2 for faults that would come again, 75 after a checkpoint on SIGTERM.
"""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes.training.pods import CONTAINER

PROGRAM_FAULTS: Final = (1, 2)
STOPPED: Final = 75

_DISRUPTED: Final = [{"type": "DisruptionTarget", "status": "True"}]
_REASON: Final = "PodFailurePolicy"


def _exit_codes(*values: int) -> dict[str, Any]:
    return {"containerName": CONTAINER, "operator": "In", "values": list(values)}


def gang_pods() -> dict[str, Any]:
    """A job's rules where the set of jobs decides: the first that matters ends the gang."""
    return {
        "rules": [
            {"action": "FailJob", "onPodConditions": _DISRUPTED},
            {"action": "FailJob", "onExitCodes": _exit_codes(*PROGRAM_FAULTS)},
            {"action": "FailJob", "onExitCodes": _exit_codes(STOPPED)},
        ]
    }


def gang(max_restarts: int) -> dict[str, Any]:
    """What becomes of a gang of which a job has failed.

    Evicted pods (spot, drains, pre-emption) start all again and cost nothing; a fault of the
    program ends it; what else there is (lost peers, GPUs, memory) is tried ``max_restarts`` times.
    Messages: pkg/controller/job/pod_failure_policy.go of Kubernetes.
    """
    return {
        "maxRestarts": max_restarts,
        # Old pods hold GPUs: new ones start when these are free.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "evicted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": [_REASON],
                "onJobFailureMessagePatterns": [
                    "has condition DisruptionTarget matching FailJob rule",
                    f"failed with exit code {STOPPED} matching FailJob rule",
                ],
            },
            {
                "name": "program_fault",
                "action": "FailJobSet",
                "onJobFailureReasons": [_REASON],
                "onJobFailureMessagePatterns": [
                    f"failed with exit code {code} matching FailJob rule"
                    for code in PROGRAM_FAULTS
                ],
            },
        ],
    }


def elastic_pods() -> dict[str, Any]:
    """A job's rules where each pod is replaced alone, while the others go on."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": _DISRUPTED},
            {"action": "Ignore", "onExitCodes": _exit_codes(STOPPED)},
            {"action": "FailJob", "onExitCodes": _exit_codes(*PROGRAM_FAULTS)},
        ]
    }


def trial_pods() -> dict[str, Any]:
    """A job's rules where each index is a trial: it fails alone."""
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": _DISRUPTED},
            {"action": "Ignore", "onExitCodes": _exit_codes(STOPPED)},
            {"action": "FailIndex", "onExitCodes": _exit_codes(*PROGRAM_FAULTS)},
        ]
    }
