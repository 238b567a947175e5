"""`python -m coordinator` is `sottovoce coordinator`."""

import sys

from bench.cli import main

main(["coordinator", *sys.argv[1:]])
