"""Weights and look-up tables to and from the engine's kernel streams."""
