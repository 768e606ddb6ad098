"""Measures Quell beside its peers, in the same run and in turns: `python -m bench`, or `make bench`.

Nothing here is asserted. Every figure is a ratio to a peer that ran a moment before on the same machine, because
absolute times on a machine that others use say little.
"""
