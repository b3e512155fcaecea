"""The engine's arithmetic on a graph, for any chip, without making tasks."""
