"""The command line as a module, `python -m sottovoce.cli`, where the program sottovoce is not on the path."""

import sys

from sottovoce.cli import main

sys.exit(main())
