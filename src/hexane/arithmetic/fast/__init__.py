"""Fast kernels that give the bits of the plain statements: Numba, vector code, all cores.

Source: docs/reference/numerics.md 11.
"""
