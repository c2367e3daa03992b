"""The history on disk, kept by a thread of its own."""
