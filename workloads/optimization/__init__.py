"""Export to ONNX and quantisation with an accuracy and speed gate."""
