"""A trained classifier for others: as an ONNX file that needs no Python, and as a model card for people to read."""
