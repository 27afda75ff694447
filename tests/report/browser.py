"""A real browser without a screen: Chromium, one page at a time."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass(frozen=True)
class Shown:
    """What the browser made of a page: the document after its scripts ran, its complaints."""

    dom: str
    complaints: list[str]

    def data(self) -> dict[str, tuple[str, str]]:
        """Text and exact value of each ``<data data-key>`` in the page."""
        parser = _Data()
        parser.feed(self.dom)
        return parser.found


def show(page: Path, width: int = 1280, height: int = 900) -> Shown:
    """Open ``page`` and return what became of it."""
    done = _run(page, width, height, "--dump-dom")
    return Shown(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def screenshot(page: Path, target: Path, width: int = 1280, height: int = 900) -> None:
    """Write a PNG of the top of the page."""
    _run(page, width, height, f"--screenshot={target}")


def measured(page: Path, script: str, width: int = 1280) -> str:
    """What the JavaScript expression ``script`` gives once the page has loaded."""
    probe = (
        "<script>addEventListener('load', () => {"
        f"document.documentElement.dataset.probe = String({script}); }})</script></body>"
    )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(page.read_text().replace("</body>", probe))
        shown = show(copy, width)
    found = re.search(r'data-probe="([^"]*)"', shown.dom)
    assert found, shown.complaints
    return found.group(1)


def _run(page: Path, width: int, height: int, action: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        return subprocess.run(
            [
                CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
                "--disable-background-networking", "--hide-scrollbars", "--no-first-run",
                "--enable-logging=stderr", f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                action, page.resolve().as_uri(),
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip


class _Data(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}
        self._open: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "data" and given.get("data-key"):
            self._open = (given["data-key"] or "", given.get("value") or "")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[self._open[0]] = (data, self._open[1])
            self._open = None
