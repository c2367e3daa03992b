"""Takes memory until somebody ends it. Nothing of it is a training but that it is watched."""

import sys
import time

CHUNK = 4 << 20


def main() -> None:
    kept, pause = [], float(sys.argv[1])
    while True:
        kept.append(bytearray(b"x") * CHUNK)
        time.sleep(pause)


if __name__ == "__main__":
    main()
