"""A real browser, without a screen, that is told what to do through a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
PHONE, DESK = 390, 1400  # widths of a page

# What sticks out of the page to the right, but for what is scrolled within a part of it; unfolded, so that all is seen.
# And the smallest height of 8-point letters in a figure of matplotlib, whose own unit is a point.
SEEN = """(() => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const width = document.documentElement.clientWidth;
  const scrolled = (one) => one && one !== document.body
    && (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX) || scrolled(one.parentElement));
  const out = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().width
    && getComputedStyle(one).position !== "fixed" && one.getBoundingClientRect().right > width + 1
    && !scrolled(one.parentElement) && !one.closest("aside"));
  const figures = [...document.querySelectorAll("figure svg")].filter((one) => one.viewBox.baseVal?.width);
  const scale = (one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width;
  return JSON.stringify({
    page: document.documentElement.scrollWidth,
    out: out.map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`),
    figures: figures.length, letters: 8 * Math.min(...figures.map(scale)),
  });
})()"""


def fits(seen, width, letters=9.5):
    """True if the page is as wide as the window, nothing sticks out, and letters of figures are large enough."""
    return seen["page"] == width and not seen["out"] and (seen["letters"] is None or seen["letters"] >= letters)


class Browser:
    """One page in a browser. `complaints` is what its console had to say."""

    def __init__(self, profile):
        self._profile, self._number, self._rest, self.complaints = profile, 0, b"", []

    def __enter__(self):
        hears, self._write = os.pipe()
        self._read, says = os.pipe()
        pipes = f'exec "$0" "$@" 3<&{hears} 4>&{says}'
        flags = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank")
        self._program = subprocess.Popen(
            ["bash", "-c", pipes, BROWSER, *flags], pass_fds=(hears, says), stderr=subprocess.DEVNULL
        )
        os.close(hears)
        os.close(says)
        return self

    def __exit__(self, *_):
        self._program.terminate()
        self._program.wait(20)
        os.close(self._write)
        os.close(self._read)

    def look(self, url, width, dark=False):
        """Open a page in a window so many pixels wide, unfold all, and say what is seen: see `fits`."""
        self.open("about:blank")
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=url)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")
        return json.loads(self.value(SEEN))

    def picture(self):
        """The whole page as a PNG."""
        width, height = (self.value(f"document.documentElement.scroll{size}") for size in ("Width", "Height"))
        whole = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        drawn = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=whole)
        return base64.b64decode(drawn["data"])

    def open(self, url):
        """Open a page, with its console listened to from the first moment on."""
        vars(self).pop("_session", None)
        page = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Page.navigate", url=url)

    def value(self, script):
        """What a line of script comes to on the page."""
        return self._ask("Runtime.evaluate", expression=script)["result"].get("value")

    def wait_for(self, script, seconds=60):
        """Until the script comes to true."""
        until = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < until, f"never: {script}"
            time.sleep(0.05)

    def _ask(self, method, **given):
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given}
        if hasattr(self, "_session"):
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(told["params"]))
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def _next(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser is silent"
            self._rest += os.read(self._read, 2**16)
        told, self._rest = self._rest.split(b"\0", 1)
        return json.loads(told)
