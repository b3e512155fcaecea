"""Graph to tasks to image: partition, selection, tiling, placement on chip, linking."""
