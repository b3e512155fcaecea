"""Front ends that make a graph: of a network file of any format, a torch module, a JAX or a tinygrad function.

``networks`` finds the reader of a file; the others speak one framework's own words and import it when they are called.
"""
