"""Go from one model's weights towards another's, or past them.

    python -m starter.training.lm.blend --start WORK/lm-final --end WORK/lm-second --out FOLDER

Writes start + share * (end - start). With a share above 1 the second stage of training, which
teaches departures from the input, counts for more than it was trained for.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def main() -> None:
    """Write the blended model folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--end", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    start = load_file(arguments.start / "model.safetensors")
    end = load_file(arguments.end / "model.safetensors")
    blended = {
        name: (first.float() + arguments.share * (end[name].float() - first.float())).half()
        for name, first in start.items()
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.end.iterdir():
        if path.suffix == ".json":
            shutil.copy(path, arguments.out)
    save_file(blended, arguments.out / "model.safetensors", metadata={"format": "pt"})
    (arguments.out / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
