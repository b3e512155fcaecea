"""ONNX files: read into a graph (op sets 7 to the newest)."""

from hexane.formats.onnx.importer import load_onnx as load

__all__ = ["load"]
