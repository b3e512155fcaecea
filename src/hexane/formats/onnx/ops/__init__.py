"""Translators of ONNX ops, one file per family."""
