"""The next token: the largest logit, or one that is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexane.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """``temperature`` 0 takes the largest logit, the first of several; otherwise a token is drawn among the ``top_k``
    likeliest (0: all), and of these among the fewest that have ``top_p`` of the probability."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature >= 0 and self.top_k >= 0 and 0 < self.top_p <= 1):
            hint = "temperature and top_k from 0 on, top_p above 0 and at most 1"
            raise UsageError(f"sampling with {self}", hint=hint)

    def pick(self, logits: np.ndarray, random: np.random.Generator) -> int:
        """A token's number; ``logits`` of shape [words]. NaN is taken for the least."""
        logits = np.where(np.isnan(logits), -np.inf, np.asarray(logits, np.float64))
        if self.temperature == 0 or not np.isfinite(logits.max()):
            return int(np.argmax(logits))
        order = np.argsort(-logits, kind="stable")[: self.top_k or None]
        shares = np.exp((logits[order] - logits[order[0]]) / self.temperature)
        shares /= shares.sum()
        enough = int(np.searchsorted(np.cumsum(shares), self.top_p)) + 1
        shares = shares[:enough] / shares[:enough].sum()
        return int(order[random.choice(len(shares), p=shares)])
