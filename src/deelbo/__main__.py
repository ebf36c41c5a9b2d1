"""`python -m deelbo`, the same as `deelbo`."""

import sys

from deelbo.cli import main

sys.exit(main())
