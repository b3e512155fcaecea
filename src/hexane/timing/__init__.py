"""Tasks or a graph to microseconds and millijoules."""
