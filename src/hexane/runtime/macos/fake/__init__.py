"""The other side of the border without a Mac: counted objects, surfaces in NumPy, a daemon with the emulator."""
