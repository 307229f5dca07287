"""Reading and writing files: YAML and JSON within limits, drafts that appear whole, ONNX."""
