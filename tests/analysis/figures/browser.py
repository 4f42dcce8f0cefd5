"""Drives a page in headless Chromium over its DevTools protocol."""

import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import websocket


class Browser:
    """One page. Records console messages and network requests."""

    def __init__(self, width=1400, height=900):
        names = ("chromium", "chromium-browser", "google-chrome")
        program = next(filter(None, map(shutil.which, names)), None)
        if not program:
            raise SystemExit(f"none of {', '.join(names)} on the PATH: './run.sh test' installs one")
        # Helper processes of the browser may write to the profile for a moment after it has ended.
        self.profile = tempfile.TemporaryDirectory(prefix="qkscope-browser-", ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
             "--remote-allow-origins=*", f"--window-size={width},{height}",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = websocket.create_connection(self._page_address(), timeout=60)
        self.last_id = 0
        self.complaints = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        self.profile.cleanup()

    def _page_address(self):
        port_file = pathlib.Path(self.profile.name) / "DevToolsActivePort"
        deadline = time.time() + 60
        while time.time() < deadline:
            if port_file.exists() and len(lines := port_file.read_text().split()) == 2:
                port, path = lines
                browser = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=60)
                browser.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
                targets = json.loads(browser.recv())["result"]["targetInfos"]
                browser.close()
                pages = [target for target in targets if target["type"] == "page"]
                if pages:
                    return f"ws://127.0.0.1:{port}/devtools/page/{pages[0]['targetId']}"
            time.sleep(0.1)
        raise SystemExit("chromium did not start within a minute")

    def send(self, method, **parameters):
        self.last_id += 1
        self.socket.send(json.dumps({"id": self.last_id, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            self._note(message)
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def wait_for(self, event):
        while True:
            message = json.loads(self.socket.recv())
            self._note(message)
            if message.get("method") == event:
                return message["params"]

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"].get("text", "") + " " + str(
                parameters["exceptionDetails"].get("exception", {}).get("description", "")))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append("dialog: " + parameters["message"])
            self.socket.send(json.dumps({"id": 0, "method": "Page.handleJavaScriptDialog",
                                         "params": {"accept": True}}))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, place):
        """Opens a file or a http:// address. Returns the seconds until everything is loaded and drawn."""
        start = time.time()
        is_address = str(place).startswith("http://")
        self.send("Page.navigate", url=place if is_address else pathlib.Path(place).resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.settle()
        return time.time() - start

    def settle(self):
        """Waits until the page has rendered its pending changes."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def click(self, selector):
        """Clicks the centre of the first element that matches the selector."""
        where = f"""(() => {{
          const found = document.querySelector({json.dumps(selector)});
          const box = found.getBoundingClientRect();
          const x = box.x + box.width / 2, y = box.y + box.height / 2;
          const there = document.elementFromPoint(x, y);
          if (found.contains(there)) return [x, y];
          window.scrollBy(0, y - window.innerHeight / 2);
          return null;
        }})()"""
        for _ in range(20):  # the layout may still shift while images load
            place = self.run(where)
            if place:
                break
            self.settle()
        else:
            raise RuntimeError(f"{selector} cannot be clicked: something lies over it")
        x, y = place
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _place(self, selector, x, y):
        """Scrolls to an element and returns the pixel coordinates of a point given as fractions of its size."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        self.settle()
        return self.run(f"""(() => {{
          const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
          return [box.x + {x} * box.width, box.y + {y} * box.height];
        }})()""")

    def hover(self, selector, x, y):
        left, top = self._place(selector, x, y)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)

    def click_at(self, selector, x, y):
        left, top = self._place(selector, x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=left, y=top, button="left", clickCount=1)

    def press(self, key, **more):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def wait_until(self, condition, seconds=30):
        """Waits until a JavaScript expression is true."""
        deadline = time.time() + seconds
        while not self.run(condition):
            if time.time() > deadline:
                raise RuntimeError(f"not true within {seconds} s: {condition}")
            time.sleep(0.02)

    def use_window(self, width, height, dark=False):
        """Gives the page a size and a colour scheme."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.settle()

    def choose(self, selector, value):
        """Sets the value of a form field and fires its input event."""
        self.run(f"""(() => {{
          const field = document.querySelector({json.dumps(selector)});
          field.value = {json.dumps(str(value))};
          field.dispatchEvent(new Event("input", {{bubbles: true}}));
        }})()""")

    def screenshot(self, path):
        picture = self.send("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(picture))
