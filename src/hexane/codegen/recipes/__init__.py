"""Recipes: from ops to tasks, one family per file (spec/engine-h13 §13)."""
