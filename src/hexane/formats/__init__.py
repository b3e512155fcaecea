"""Files to and from graphs and images."""
