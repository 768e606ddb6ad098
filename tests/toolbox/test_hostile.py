"""Transcripts with injected or hostile calls, as models make them over HTTP: nothing runs that nobody allowed."""
