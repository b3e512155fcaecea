"""What each chip is: generation, cores, clocks, memories, limits and measured constants, each with its evidence."""
