"""Where events are kept: implementations of `quell.ports.Store`."""
