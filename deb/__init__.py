"""The Debian package: ``python -m deb.build`` stages a tree and has dpkg-deb pack it, the same bytes each time."""
