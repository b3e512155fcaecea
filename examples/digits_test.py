"""The digits that nothing was trained on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from digits import TRAINED, samples


def dataset():
    return samples()[TRAINED:]
