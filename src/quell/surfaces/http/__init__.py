"""The HTTP API, its events and its page, on a thread of its own: they answer while the kernel's loop is blocked."""
