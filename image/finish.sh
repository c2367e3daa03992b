#!/bin/sh
# finish.sh PACKAGE: in the root file system of an image that has what the package depends on.
set -eu
# The numbers that charts/trainprobe names: the daemon gives its reports to the group, the exporter reads them.
groupadd --system --gid 990 trainprobe
useradd --uid 10990 --gid trainprobe --no-create-home --home-dir / --shell /usr/sbin/nologin trainprobe-exporter
dpkg -i "$1"
# Code that is not compared with its source at each start: an image resets the times of files.
find /usr/lib/python3* /usr/lib/trainprobe -name __pycache__ -prune -exec rm -r {} +
python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3* /usr/lib/trainprobe
rm -rf /var/log/* /var/cache/ldconfig /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-
