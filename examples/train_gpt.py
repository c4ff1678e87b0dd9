"""Train a small GPT under any layout, with the same losses.

    python examples/train_gpt.py
    torchrun --nproc-per-node 8 examples/train_gpt.py --layout "pp=2 dp=2 tp=2" --layout "cp=2 sep=2 tp=2"

See docs/training.md; the parts are in examples/train_gpt/.
"""

import sys

from train_gpt.main import main

if __name__ == "__main__":
    sys.exit(main())
