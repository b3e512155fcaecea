"""Facts that passes, numerics and codegen must agree on: fused ops, windows and padding, functions and their tables."""
