"""Random networks against the whole chain: `python tools/fuzz networks` (docs/fuzzing.md)."""
