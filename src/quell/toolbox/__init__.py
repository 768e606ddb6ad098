"""Tools: what agents do. Each implements `quell.ports.Tool` and acts through its caller only."""
