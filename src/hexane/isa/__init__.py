"""Task descriptors as data: one declarative table of blocks, registers and bit fields per generation."""
