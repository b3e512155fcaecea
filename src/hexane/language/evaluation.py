"""Quality of a decoder on the engine on text, beside float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hexane.errors import UsageError

if TYPE_CHECKING:
    from hexane.language.decoder import Decoder

CONTAINED = (1, 3, 5)


@dataclass(frozen=True)
class TextScores:
    """``tokens`` predicted from those before; perplexity of both; divergence (KL, nats) of the engine from float32.

    ``contained``: share of positions at which float32's first choice is among the engine's first 1, 3, 5. ``decided``:
    share at which float32's two best logits lie further apart than twice the engine's largest error there.
    """

    tokens: int
    perplexity: float
    perplexity_float32: float
    divergence: float
    contained: dict[str, float]
    decided: float
    error: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def evaluate_text(decoder: Decoder, ids: Sequence[int], chip: str = "M4", level: str = "graph") -> TextScores:
    """Scores over all positions of a text but the last; ``level`` "graph" and "engine" give the same bits."""
    tokens = decoder.checked(ids)
    if len(tokens) < 2:
        raise UsageError("a text of one token predicts nothing", hint="two tokens or more")
    context = decoder.context_for(len(tokens))
    ours, exact = (decoder.start(context, chip, how).feed(tokens).astype(np.float64) for how in (level, "float32"))
    shares, exact_shares = _log_shares(ours), _log_shares(exact)
    following = np.asarray(tokens[1:])
    places = np.arange(len(following))
    order = np.argsort(-ours[:-1], axis=1, kind="stable")
    best = exact[:-1].argmax(1)
    contained = {str(k): float((order[:, :k] == best[:, None]).any(1).mean()) for k in CONTAINED}
    two = np.sort(exact[:-1], axis=1)[:, -2:]
    errors = np.abs(ours - exact)[:-1].max(1)
    divergence = np.sum(np.exp(exact_shares) * (exact_shares - shares), axis=1)[:-1]
    return TextScores(
        len(following),
        float(np.exp(-shares[places, following].mean())),
        float(np.exp(-exact_shares[places, following].mean())),
        float(divergence.mean()),
        contained,
        float((two[:, 1] - two[:, 0] > 2 * errors).mean()),
        float(errors.max()),
    )


def _log_shares(logits: np.ndarray) -> np.ndarray:
    """Logarithms of a softmax over the words, [tokens, words]."""
    centred = logits - logits.max(1, keepdims=True)
    return centred - np.log(np.exp(centred).sum(1, keepdims=True))
