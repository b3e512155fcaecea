"""Core ML, the public way: a network as a package, predictions, and the plan that says where each op runs.

Core ML prefers devices, it does not promise them: what a prediction says of the engine is what its plan says.
"""
