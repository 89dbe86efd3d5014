"""`python -m cubridge_tui` is the `cubridge` command."""

import os
import sys

if __name__ == "__main__":
    # Without -P, `-m` puts the current folder first; an `engine/` or `torch.py` there is not ours.
    here = os.getcwd()
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path and sys.path[0] in ("", here) and here != ours and not sys.flags.safe_path:
        del sys.path[0]

    from cubridge_tui.cli import main

    sys.exit(main())
