"""`python -m silo` is `sottovoce silo`."""

import sys

from bench.cli import main

main(["silo", *sys.argv[1:]])
