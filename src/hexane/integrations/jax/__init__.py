"""JAX: a function with examples of its arguments becomes a network."""

from hexane.integrations.jax.trace import from_jax

__all__ = ["from_jax"]
