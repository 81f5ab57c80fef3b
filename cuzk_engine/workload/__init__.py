"""Circuits of any size with witnesses, to measure and test with: see ``profiles`` for what there is."""
