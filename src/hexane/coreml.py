"""Core ML's models with the look of coremltools (``hexane.integrations.coreml``)."""

from hexane.integrations.coreml import *  # noqa: F403
