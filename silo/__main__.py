"""`python -m silo` is `sottovoce silo`."""

import sys

from cli.main import main

main(["silo", *sys.argv[1:]])
