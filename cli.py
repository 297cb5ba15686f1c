"""Launches `moe-align` from a checkout."""

from moe_align.cli import main

main()
