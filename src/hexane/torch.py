"""The back end of ``torch.compile`` and its explanations (``hexane.integrations.torch``)."""

from hexane.integrations.torch import *  # noqa: F403
