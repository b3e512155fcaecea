"""A program on a device: the emulator, Linux, macOS."""
