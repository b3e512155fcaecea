"""``hexane.torch``: a back end of ``torch.compile``, and what of a module stays off the engine."""
