"""Models: what answers. Each implements `quell.ports.Model` and knows nothing of the others."""
