"""Real Kafkas come from `bench/`, outside of any package: put the repository's root on the import path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
