"""Pictures for docs/images, of a report that was kept: python -m tests.browser.pictures REPORT.html [TRACE.json]"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.browser.chromium import Tab, chromium
from tests.browser.test_perfetto import UI, Quiet

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main(report: Path, trace: Path | None) -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        profile.mkdir()
        with chromium(profile) as browser:
            for scheme in ("light", "dark"):
                with browser.tab() as tab:
                    tab.prefers(scheme)
                    _page(tab, report, IMAGES / f"page-{scheme}.png")
            if trace is not None:
                with browser.tab() as tab:
                    _perfetto(tab, trace, Path(folder), IMAGES / "perfetto.png")


def _page(tab: Tab, report: Path, picture: Path) -> None:
    tab.size(1440, 1750 if "light" in picture.name else 1000)
    tab.open(report.absolute().as_uri())
    tab.wait_for("document.getElementById('timeline').dataset.to > 0")
    if "dark" in picture.name:
        tab.evaluate("document.getElementById('timeline-panel').scrollIntoView({block: 'start'})")
        tab.evaluate("window.scrollBy(0, -60)")
    tab.evaluate("new Promise((done) => setTimeout(done, 500))")
    tab.screenshot(picture, whole=False)


def _perfetto(tab: Tab, trace: Path, folder: Path, picture: Path) -> None:
    site = folder / "site"
    site.mkdir()
    for entry in UI.iterdir():
        (site / entry.name).symlink_to(entry)
    shutil.copy(trace, site / "trace.json")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    tab.size(1440, 800)
    tab.open(f"{url}/#!/?url={url}/trace.json")
    tab.wait_for("window.app?.trace?.engine !== undefined", seconds=60)
    tab.wait_for("!document.body.innerText.includes('Loading...')", seconds=60)
    tab.evaluate("new Promise((done) => setTimeout(done, 3000))")
    tab.wait_for("!document.body.innerText.includes('Loading...')", seconds=60)
    tab.screenshot(picture, whole=False)
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
