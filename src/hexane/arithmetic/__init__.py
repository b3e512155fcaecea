"""What each unit of the engine computes, bit by bit: a plain statement and a fast kernel that gives the same bits."""
