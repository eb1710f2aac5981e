"""`python -m momentree.cli`, for where the console script is not on the path."""

import sys

from momentree.cli import main

sys.exit(main())
