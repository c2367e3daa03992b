"""A real headless Chromium, spoken to through its own pipe: DevTools messages as JSON that ends with NUL."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 30.0
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the tests run as root, where the sandbox cannot; they load nothing but our own page
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--window-size=1440,1000",
)
_KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9}


class BrowserError(Exception):
    """Chromium refused what it was asked for."""


class Pipe:
    """Messages to and from Chromium; what it tells unasked is kept by session."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._rest = b""
        self._number = 0
        self.events: dict[str, list[dict[str, Any]]] = {}

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """The result of a command. Raises BrowserError."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._write, data) :]
        until = time.monotonic() + TIMEOUT
        while True:
            for answer in self.receive(until - time.monotonic()):
                if answer.get("id") == self._number:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error']}")
                    return answer["result"]
            if time.monotonic() > until:
                raise BrowserError(f"{method}: no answer in {TIMEOUT} s")

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """What comes within this time, answers first to last; events are put aside."""
        if not select.select([self._read], [], [], max(seconds, 0))[0]:
            return []
        chunk = os.read(self._read, 1 << 20)
        if not chunk:
            raise BrowserError("Chromium has ended")
        *whole, self._rest = (self._rest + chunk).split(b"\0")
        messages = [json.loads(message) for message in whole]
        for message in messages:
            if "method" in message:
                self.events.setdefault(message.get("sessionId", ""), []).append(message)
        return [message for message in messages if "id" in message]


@dataclass
class Tab:
    """One page, and what it complained about."""

    pipe: Pipe
    session: str

    def call(self, method: str, **parameters: Any) -> Any:
        return self.pipe.call(method, self.session, **parameters)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression (of its promise, if it is one)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 15.0) -> Any:
        """The first value of the expression that is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if value := self.evaluate(expression):
                    return value
            except BrowserError:  # the page is being replaced
                pass
            self.pipe.receive(0.05)
        raise AssertionError(f"not within {seconds} s: {expression}\n{self.complaints()}\n{self.text('body')[:2000]}")

    def text(self, selector: str) -> str:
        """The text that a person sees there."""
        told: str = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return told

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1) -> None:
        self.mouse("Moved", x, y)
        for number in range(1, count + 1):
            for kind in ("Pressed", "Released"):
                self.mouse(kind, x, y, button="left", clickCount=number)

    def click_on(self, selector: str) -> None:
        """The middle of an element, scrolled to."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.click(x, y)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("Moved", *start)
        self.mouse("Pressed", *start, button="left", clickCount=1)
        for part in (0.3, 0.6, 1.0):
            at = [a + (b - a) * part for a, b in zip(start, end, strict=True)]
            self.mouse("Moved", at[0], at[1], button="left", buttons=1)
        self.mouse("Released", *end, button="left", clickCount=1)

    def press(self, key: str, *, shift: bool = False) -> None:
        text = {"text": key} if len(key) == 1 else {}
        code = _KEYS.get(key, ord(key[0]))
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                modifiers=8 if shift else 0,
                **(text if kind == "keyDown" else {}),
            )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def prefers(self, scheme: str) -> None:
        """dark or light, as the system would say."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def complaints(self) -> list[str]:
        """Errors and warnings on its console, exceptions, and what its policy refused."""
        told = []
        for event in self.pipe.events.get(self.session, []):
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                told.append(str(parameters["exceptionDetails"].get("exception", parameters["exceptionDetails"])))
            elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                told.append(str(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                told.append(parameters["entry"]["text"])
        return told

    def asked(self) -> list[str]:
        """The addresses of all requests so far."""
        events = self.pipe.events.get(self.session, [])
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def tasks(self, doing: Callable[[], object]) -> list[float]:
        """Milliseconds of CPU of each task that the page's main thread ran while ``doing``, the longest first.

        CPU and not wall time: on a busy machine the second says more about the others.
        """
        self.pipe.call(
            "Tracing.start", categories="toplevel,disabled-by-default-devtools.timeline", transferMode="ReportEvents"
        )
        doing()
        self.pipe.call("Tracing.end")
        events = self.pipe.events.setdefault("", [])
        until = time.monotonic() + TIMEOUT
        while not any(event["method"] == "Tracing.tracingComplete" for event in events):
            assert time.monotonic() < until, "the trace does not end"
            self.pipe.receive(0.2)
        traced = [one for e in events if e["method"] == "Tracing.dataCollected" for one in e["params"]["value"]]
        events.clear()
        mains = {
            (one["pid"], one["tid"])
            for one in traced
            if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
        }
        spent = [
            one.get("tdur", one["dur"]) / 1000
            for one in traced
            if one.get("ph") == "X" and (one["pid"], one["tid"]) in mains and one["name"].endswith("RunTask")
        ]
        return sorted(spent, reverse=True)


@dataclass
class Chromium:
    pipe: Pipe

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """A page with cookies and storage of its own."""
        context = self.pipe.call("Target.createBrowserContext")["browserContextId"]
        target = self.pipe.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made = Tab(self.pipe, session)
        for domain in ("Runtime", "Page", "Log", "Network"):
            made.call(f"{domain}.enable")
        yield made
        self.pipe.call("Target.disposeBrowserContext", browserContextId=context)
        self.pipe.events.pop(session, None)


@contextmanager
def chromium(profile: Path, environment: Mapping[str, str] | None = None) -> Iterator[Chromium]:
    program = shutil.which("chromium")
    assert program is not None
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    # Chromium reads its commands from descriptor 3 and answers on 4.
    inner = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    command = ["bash", "-c", inner, "bash", program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "TZ": "UTC", **(environment or {})},
            start_new_session=True,
        )
    os.close(to_browser)
    os.close(from_browser)
    pipe = Pipe(from_us, to_us)
    try:
        pipe.call("Browser.getVersion")
        yield Chromium(pipe)
    finally:
        try:
            pipe.call("Browser.close")
        except (BrowserError, OSError):
            pass
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        os.close(from_us)
        os.close(to_us)
