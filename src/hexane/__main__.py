"""``python -m hexane``."""

from hexane.cli.main import main

main()
