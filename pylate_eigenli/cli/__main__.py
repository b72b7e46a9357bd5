"""``python -m pylate_eigenli.cli`` is the ``eigenli`` command."""

from . import main

main()
