"""A headless Chromium, spoken to over its DevTools pipe: no driver and no package beside the browser itself."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
HOW = "no Chromium on this machine; install one, e.g. with: apt-get install chromium"
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason=HOW)
FLAGS = (
    "--headless",
    "--no-sandbox",  # the pages are our own, and CI often runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
HAND_OVER = """
import os, sys
source, target = map(int, sys.argv[1:3])
while min(source, target) < 5:
    source, target = os.dup(source), os.dup(target)
os.dup2(source, 3)
os.dup2(target, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the browser, which reads from 3 and writes to 4, whatever these numbers were before."""

OVERFLOWS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""Pixels by which a page is wider than the screen."""
COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
"""Events with which a page complains."""
UNTIL = """
new Promise((resolve, reject) => {
  const end = Date.now() + 300000;
  const look = () => {
    if (CONDITION) resolve(true);
    else if (Date.now() > end) reject(document.body.innerText);
    else setTimeout(look, 50);
  };
  look();
})
"""
"""Resolves when a condition holds."""
LOW_CONTRAST = """
(() => {
  const channels = text => (text.match(/[\\d.]+/g) || []).map(Number).map(v => text.startsWith('color(') ? 255 * v : v);
  const light = c => {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const text = getComputedStyle(e).backgroundColor, c = channels(text);
      if (!text.startsWith('rgba') || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const front = light(channels(element.closest('svg') ? style.fill : style.color)), back = light(behind(element));
    const ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
    if (ratio < 4.5) found.push([walker.currentNode.data, ratio]);
  }
  return found;
})()
"""
"""Texts of a page whose contrast is below 4.5, with their contrast."""


@dataclass
class Page:
    """A tab, and all that it has reported so far."""

    commands: IO[bytes]
    answers: IO[bytes]
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _count: int = 0

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Gives a command of the DevTools protocol, and waits for its answer."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        self.commands.write(json.dumps(order).encode() + b"\0")
        self.commands.flush()
        while (message := self._next()).get("id") != self._count:
            pass
        assert "error" not in message, message["error"]
        result: dict[str, Any] = message["result"]
        return result

    def open(self, page: Path | str, *, width: int, dark: bool) -> None:
        """Loads a file or an address at a width and in a colour scheme, to its end."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not self.reported("Page.loadEventFired"):
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; the page itself may run none."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses a key."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def reported(self, method: str) -> list[dict[str, Any]]:
        """What the page has reported under a name since it was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def screenshot(self, file: Path) -> None:
        """Saves a picture of the whole page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page on paper."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser tab with a separate profile; it is closed at the end of the block."""
    assert CHROMIUM is not None, HOW
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    ends = map(str, (theirs_in, theirs_out))
    process = subprocess.Popen(
        [sys.executable, "-c", HAND_OVER, *ends, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(ours_out, "wb") as commands, os.fdopen(ours_in, "rb") as answers:
        page = Page(commands, answers)
        target = page.send("Target.createTarget", url="about:blank")["targetId"]
        session = page.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        whole = page.session
        page.session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        try:
            yield page
        finally:
            page.session = whole
            page.send("Browser.close")
    process.wait(timeout=20)


def until(tab: Page, condition: str) -> None:
    """Wait in the page until a JavaScript condition holds."""
    assert tab.evaluate(UNTIL.replace("CONDITION", condition))


def text(tab: Page) -> str:
    """Return what the page shows."""
    return str(tab.evaluate("document.body.innerText")).replace("\u00a0", " ")
