"""Code that runs on the machines; it knows neither Pulumi nor the rest of Falaj."""

import os

# ONNX Runtime's official builds for Linux write a device id into the user's cache and send usage
# events to a host abroad, unless this variable is set before the library is loaded
# (github.com/microsoft/onnxruntime/pull/27379). Nothing of a sovereign machine may leave it, so
# this is not a default that the environment could change.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
