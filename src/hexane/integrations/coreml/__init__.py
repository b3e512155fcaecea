"""``hexane.coreml``: models with the look of coremltools, predicted on any operating system."""
