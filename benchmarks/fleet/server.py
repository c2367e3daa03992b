"""Serves the texts of all hosts over HTTP, as the path says: ``/hostNNNNN:19752``. A process of its own.

``python -m benchmarks.fleet.server LIFE_SECONDS INTERVAL`` prints its port and runs until it is ended.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import time

from benchmarks.fleet.hosts import Fleet
from trainprobe_exporters.exposition import Format
from trainprobe_exporters.publication import GZIP_LEVEL


def address(host: int) -> str:
    """What Prometheus calls it: its label ``instance``."""
    return f"host{host:05d}:19752"


async def serve(fleet: Fleet) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                host = int(head.split(" ", 2)[1].removeprefix("/host").partition(":")[0])
                body = fleet.text(host, time.time())
                coding = ""
                if "gzip" in head.lower().partition("accept-encoding:")[2].partition("\r\n")[0]:
                    body, coding = gzip.compress(body, GZIP_LEVEL, mtime=0), "Content-Encoding: gzip\r\n"
                lines = f"HTTP/1.1 200 OK\r\nContent-Type: {Format.TEXT.value}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{lines}{coding}\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Fleet(time.time(), life_seconds=float(sys.argv[1]), interval=float(sys.argv[2]))))
