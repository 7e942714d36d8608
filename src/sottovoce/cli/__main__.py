"""`python -m sottovoce.cli`."""

import sys

from sottovoce.cli import main

sys.exit(main())
