"""The engine inside other people's interfaces: Core ML, torch, ONNX.

Each package speaks one library's own words and imports that library when it is asked for, never with hexane itself.
``hexane.coreml``, ``hexane.torch`` and ``hexane.onnx_backend`` hand the public names on. A package knows nothing of the
others.
"""
