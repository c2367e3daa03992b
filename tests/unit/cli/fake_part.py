"""Stands in for the half of `run` that needs rights: speaks its protocol, loads nothing.

FAKE says how it behaves: "" well, "refuse", "die" (after it was ready), "dumb" (no report), "hurry" (SIGTERM to the
other half while that waits for the report), "cut" (the report's file has no end), "strange" (well; the front may send
no signal), "full" (reports as the real half does, 64 ranks with full lists).
What it was told is written to the file FAKE_LOG.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

behaviour = os.environ.get("FAKE", "")
order = json.loads(sys.stdin.readline())
with open(os.environ["FAKE_LOG"], "w") as log:
    json.dump(order, log)


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


if order["record"]:
    print('{"frame":{"trainprobe_recording":1}}', flush=True)
if behaviour == "refuse":
    say(failed={"reason": "this kernel has no BTF", "remedy": "another kernel"})
    sys.exit(1)
say(loaded=True)
if order["command"]:
    child = json.loads(sys.stdin.readline() or "{}")
    if not child:
        sys.exit(1)
    order["pid"] = child["child"]
    with open(os.environ["FAKE_LOG"], "w") as log:
        json.dump(order, log)
if behaviour == "full":
    from tests.unit.cli.full_report import report_as_the_real_half

    report_as_the_real_half(order["command"])
    sys.exit()
say(ready=True)
if order["record"]:
    print('{"frame":{"at":[1,2]}}', flush=True)
if behaviour == "die":
    sys.exit(9)
if not order["command"]:
    say(ended=True)
end = json.loads(sys.stdin.readline() or "{}")
if behaviour == "hurry":
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.2)
if behaviour != "dumb":
    rank = {"rank": 0, "world_size": 1, "pid": order["pid"], "wall_seconds": 10.0, "productive_seconds": 10.0}
    run = {"run": "x-1", "command": order["command"], "user": "u", "cwd": "/", "started": 1.0, "ranks": [rank]}
    say(text=f"cost of watching, {end['end']['width']} columns")
    if end.get("file"):
        text = json.dumps({"version": 1, "generated": 5.0, "runs": [run]})
        say(file=text[:20])
        if behaviour != "cut":
            say(file=text[20:])
            say(whole=True)
