"""Code that runs on the machines; it knows neither Pulumi nor the rest of Falaj."""

import os
import sys

# ONNX Runtime's official builds for Linux write a device id into the user's cache and send usage
# events to a host abroad, unless this variable is set before the library is loaded
# (github.com/microsoft/onnxruntime/pull/27379). Nothing of a sovereign machine may leave it, so
# this is not a default that the environment could change.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# OpenVINO's import writes an id into the user's home folder and looks a host of Google Analytics
# up, if this module can be imported. Without it a stub of OpenVINO's own takes over.
sys.modules["openvino_telemetry"] = None  # pyright: ignore[reportArgumentType]
"""OpenVINO must not identify the machine or report its use abroad."""
