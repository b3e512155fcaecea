"""Language models: from a folder of weights to tokens, programs, rates and reasons."""

from hexane.language.decoder import Decoder

__all__ = ["Decoder"]
