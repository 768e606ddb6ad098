"""The programs between a runtime and its boxes: the zygote, and the keepers that it forks.

Everything here imports the standard library and this folder only, so that it starts with `python -I -S`
in a few milliseconds and a keeper forked from it costs about a megabyte.
"""
