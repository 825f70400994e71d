"""`python -m hier_models.cli`, which launchers of several processes can start."""

from . import main


main()
