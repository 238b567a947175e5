"""`python -m coordinator` is `sottovoce coordinator`."""

import sys

from cli.main import main

main(["coordinator", *sys.argv[1:]])
