import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for labelled_batches, which is no test
