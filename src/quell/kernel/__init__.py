"""The agent runtime on top of supervision: events, their delivery and their log, sessions, turns, plugins."""
