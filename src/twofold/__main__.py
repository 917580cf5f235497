"""`python -m twofold` is the command `twofold`; torchrun needs it."""

from twofold.cli import main

main(prog_name="twofold")
