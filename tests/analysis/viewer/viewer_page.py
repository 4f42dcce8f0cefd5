"""The viewer in headless Chromium: starts `qkscope view` and uses its page as a reader does."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "figures"))
from browser import Browser  # noqa: E402


@contextlib.contextmanager
def served(qkscope, *arguments):
    """Runs `qkscope view` and yields the address of its page; Ctrl-C must end it with success."""
    # A shell ignores SIGINT in programs that it starts with &, and programs inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program = subprocess.Popen([qkscope, "view", "--no-open", "--device", "cpu", *map(str, arguments)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = program.stdout.readline().strip()
        if not url.startswith("http://"):
            program.wait(timeout=20)
            raise RuntimeError(f"qkscope view printed no address: {url!r} {program.stderr.read()}")
        yield url
    finally:
        program.send_signal(signal.SIGINT)
        try:
            status = program.wait(timeout=20)
        except subprocess.TimeoutExpired:
            program.kill()
            raise RuntimeError("qkscope view did not end within 20 s after Ctrl-C") from None
    if status != 0:
        raise RuntimeError(f"qkscope view ended with {status}: {program.stderr.read()}")


class ViewerPage(Browser):
    def at(self, url, fragment="", width=1280, height=720, dark=False):
        """Opens the page and waits for its row."""
        self.use_window(width, height, dark)
        self.send("Page.navigate", url="about:blank")  # a change of the fragment alone would not load the page
        self.wait_for("Page.loadEventFired")
        self.open(f"{url}{fragment}")
        self.wait_for_row()

    def at_file(self, path):
        self.use_window(1280, 720)
        self.open(path)
        self.wait_for_row()

    def wait_for_row(self):
        self.wait_until("""document.querySelector("main").getAttribute("aria-busy") === "false" """)
        self.settle()

    def text_of(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def top_keys(self):
        """Cells of the table of top keys, without its title row."""
        return self.run("""[...document.querySelectorAll("#top-keys tr")].slice(1).map(
            (row) => [...row.children].map((cell) => cell.textContent))""")

    def summary(self):
        """Numbers of the row: title -> one text per head."""
        return dict(self.run("""[...document.querySelectorAll("#row-summary tr")].slice(1).map(
            (row) => [row.children[0].textContent, [...row.children].slice(1).map((cell) => cell.textContent)])"""))

    def colours(self, selector):
        """Number of different colours on a canvas."""
        return self.run(f"""(() => {{
          const canvas = document.querySelector({json.dumps(selector)});
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        }})()""")

    def state(self):
        """The state in the address, after the page has written it."""
        self.run("new Promise((done) => setTimeout(done, 300))")
        return dict(part.split("=", 1) for part in self.run("location.hash.slice(1)").split("&"))

    def told(self):
        return self.run("document.querySelector('.hint').hidden ? '' : document.querySelector('.hint').textContent")


def shown(value):
    """A number as the page prints it (`shown` in base.js)."""
    if float(value).is_integer():
        return str(int(value))
    size = abs(value)
    if size < 1e-3 or size >= 1e5:
        digits, power = f"{value:.2e}".split("e")
        return f"{digits}e{'-' if int(power) < 0 else '+'}{abs(int(power))}"
    if size < 1e-2 or size >= 10:
        import decimal
        places = 3 if size < 1e-2 else 5
        return str(decimal.Context(prec=places).create_decimal(decimal.Decimal(float(value))))
    return f"{value:.4f}"
