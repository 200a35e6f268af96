"""What probabilities answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.5


def likely(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return which labels a text has that may have any number: those likelier than not.

    A probability of one half is no yes, as a logit of 0 is none.

    Args:
        probabilities: of any shape.
    """
    return probabilities > THRESHOLD
