"""The history on disk: an SQLite file that the daemon alone opens, and append-only segments for everybody else.

Nothing in here knows the model or its JSON: rows carry what is asked for by column, and a text that only others read.
"""
