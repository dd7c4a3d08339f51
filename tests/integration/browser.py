"""A headless Chromium for tests of pages, over the DevTools protocol on a pipe: nothing but Python's own library is needed."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The path of a Chromium or Chrome, or None. VT_CHROMIUM names one."""
    for name in (os.environ.get("VT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"):
        path = name and shutil.which(name)
        if path:
            return path
    return None


class Error(Exception):
    pass


class Browser:
    """One page in one browser. `console` has what the page said or threw, `requests` every address that it asked for."""

    def __init__(self, width=1280, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="vt-browser-")
        mine, its = os.pipe(), os.pipe()  # it reads from 3 and writes to 4

        def descriptors():
            os.dup2(mine[0], 203)
            os.dup2(its[1], 204)
            os.dup2(203, 3)
            os.dup2(204, 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile, "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=descriptors, env={k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")})
        os.close(mine[0])
        os.close(its[1])
        self.to, self.come, self.buffer, self.last = mine[1], its[0], b"", 0
        self.session, self.console, self.requests, self.waiting = None, [], [], []
        target = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height, dark=dark)

    def close(self):
        """Ends it, and what it has put on the disk: in order, because its other processes write there until then."""
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except (Error, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for descriptor in (self.to, self.come):
            os.close(descriptor)
        shutil.rmtree(self.profile, True)

    # --- the protocol ---

    def read(self, until):
        """The next message, or None at the time `until`."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.come], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.come, 1 << 16)
            if not more:
                raise Error("the browser has gone")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append((p["type"], " ".join(str(a.get("value", a.get("description"))) for a in p["args"])))
        elif method == "Runtime.exceptionThrown":
            self.console.append(("exception", p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"]))
        elif method == "Log.entryAdded":
            self.console.append((p["entry"]["level"], p["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        self.waiting.append(message)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self.read(until)
            if answer is None:
                raise Error("no answer to " + method)
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise Error("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]
            self.note(answer)

    def event(self, method):
        """Waits until an event has come since the last call of open()."""
        until = time.monotonic() + 60
        while not any(m.get("method") == method for m in self.waiting):
            message = self.read(until)
            if message is None:
                raise Error("no " + method)
            self.note(message)

    # --- the page ---

    def resize(self, width, height, mobile=False, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, path):
        self.waiting, self.console, self.requests = [], [], []
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.event("Page.loadEventFired")
        return self

    def run(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Error(result["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return result["result"].get("value")

    def wait(self, condition):
        """Until an expression is true."""
        self.run("new Promise((done, fail) => { const start = Date.now(); (function look() { if (%s) done(true); else if (Date.now() - start > 20000) "
                 "fail(new Error('never: ' + %s)); else setTimeout(look, 20); })(); })" % (condition, json.dumps(condition)))

    def box(self, selector):
        """Scrolls an element into view, and waits until that has been drawn and told. Its left, top, width and height."""
        return self.run("(async () => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center', behavior: 'instant'}); "
                        "for (let i = 0; i < 2; i++) await new Promise(done => requestAnimationFrame(done)); "
                        "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()" % json.dumps(selector))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        left, top, width, height = self.box(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, left + width / 2, top + height / 2, **({} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}))

    def hover(self, selector, share=0.5):
        left, top, width, height = self.box(selector)
        self.mouse("mouseMoved", left + width * share, top + height / 2)

    def key(self, key, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": text or key} if kind == "keyDown" and (text or len(key) == 1) else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path, clip=None, whole=False):
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=bool(clip), **({"clip": clip} if clip else {}))
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
