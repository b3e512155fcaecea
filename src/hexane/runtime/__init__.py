"""A program on a device: the emulator, Linux, macOS; and what is known of the private interface."""
