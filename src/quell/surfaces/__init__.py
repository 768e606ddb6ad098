"""Ways in for people and programs. Each is a client of the kernel: it owns nothing that a session runs."""
