#!/bin/sh
# prune.sh: the root file system without what neither program uses. The list of packages stays, for scanners of images.
set -eu
libraries=/usr/lib/x86_64-linux-gnu
rm -rf "$libraries"/perl* "$libraries"/libperl* /usr/bin/perl* /usr/share/perl* \
    "$libraries"/gconv "$libraries"/libicui18n* "$libraries"/libapt* "$libraries"/libgnutls* "$libraries"/libdb-5* \
    /usr/lib/apt /usr/bin/apt* /usr/bin/gpgv /etc/cron* /usr/bin/dpkg* /usr/share/dpkg \
    /usr/share/zoneinfo /usr/share/info /usr/share/bash-completion /usr/share/zsh /usr/share/trainprobe \
    /usr/lib/python3.*/pydoc_data /usr/lib/python3.*/idlelib /usr/lib/python3.*/ensurepip /usr/lib/python3.*/lib2to3 \
    /usr/lib/python3/dist-packages/psutil/tests \
    /var/cache/* /var/lib/dpkg/info /var/lib/dpkg/*-old
