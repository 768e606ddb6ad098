"""The HTTP API, its events and its page, served from a thread of its own: it answers while the kernel's loop is blocked."""
