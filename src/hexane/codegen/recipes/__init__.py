"""Recipes: from ops to tasks, one family per file (docs/reference/engine-h13.md 13)."""
