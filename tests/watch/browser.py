"""A real browser, without a screen, that is told what to do through a pipe."""

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
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


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

    def open(self, url):
        """Open a page, with its console listened to from the first moment on."""
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
