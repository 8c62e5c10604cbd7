"""Settings shared by all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

import workloads

# Before any test loads ONNX Runtime: the import is what keeps its telemetry off.
assert workloads.__doc__

# A shell that runs the tests in the background, or nohup, leaves these ignored, and every process
# that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Machines are shared: how long a draw takes says nothing about the code.
settings.register_profile(
    "falaj", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("falaj")
