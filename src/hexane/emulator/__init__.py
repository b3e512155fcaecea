"""An engine that executes an image as the hardware would: registers and bytes only."""
