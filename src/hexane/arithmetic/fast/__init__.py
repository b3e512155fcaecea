"""Fast kernels that give the bits of the plain statements: Numba, vector code, all cores (spec/numerics §11)."""
