#!/usr/bin/env python3
"""Takes the screenshots of the viewer for the documentation, and the sequence at the top of the README.

    python tools/make_viewer_screenshots.py QKSCOPE [FOLDER] [--model MODEL] [--text-file FILE] [--panels]

Needs Chromium and the packages of tools/requirements-test.txt. FOLDER (docs/figures) gets viewer.png, viewer_narrow.png,
viewer_dark.png, viewer_heads.png and viewer.gif, all of the demo's model and corpus, so that they can be made at any time. --panels
adds panel_NAME_WIDTH[_dark].png of each part of the page. --model takes viewer_MODEL.png of another model instead.
"""
import argparse
import io
import json
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "analysis" / "viewer"))
from viewer_page import ViewerPage, served  # noqa: E402

CHECKPOINTS = ROOT / "share" / "demo" / "checkpoints"
TEXTS = 1  # texts of the corpus; the model has a context of 2,048 tokens


class Camera(ViewerPage):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.frames = []

    def picture(self):
        self.wait_until("matrixMap.loaded()")
        self.settle()
        file = self.folder / "frame.png"
        self.screenshot(file)
        picture = Image.open(io.BytesIO(file.read_bytes())).convert("RGB")
        file.unlink()
        return picture

    def save(self, name):
        self.picture().quantize(128).save(self.folder / f"{name}.png", optimize=True)

    def frame(self):
        picture = self.picture()
        self.frames.append(picture.resize((picture.width * 3 // 4, picture.height * 3 // 4), Image.LANCZOS))

    def sequence(self, name):
        frames = [frame.quantize(64) for frame in self.frames]
        frames[0].save(self.folder / f"{name}.gif", save_all=True, append_images=frames[1:], duration=1800, loop=0, optimize=True)


def wait_for_statistics(page):
    page.wait_until("document.getElementById('head-scale').textContent.includes(' to ')")
    page.run("new Promise((done) => setTimeout(done, 1500))")


def take(camera, url, tokens):
    query = tokens * 2 // 3
    camera.at(url, f"#heads=2.0&query={query}&colour=prev")
    wait_for_statistics(camera)
    camera.save("viewer")
    camera.frame()
    camera.click("#zoom-query")  # single tokens
    camera.frame()
    camera.at(url, f"#heads=2.0,1.1&query={query}&colour=prev")  # two heads
    wait_for_statistics(camera)
    camera.frame()
    camera.save("viewer_heads")
    camera.choose("#run", 1)  # another checkpoint
    camera.wait_for_row()
    camera.frame()
    camera.at(url, f"#heads=2.0&query={query}&colour=prev", dark=True)
    wait_for_statistics(camera)
    camera.save("viewer_dark")
    camera.frame()
    camera.sequence("viewer")
    camera.at(url, f"#heads=2.0&query={query}&colour=prev", width=390, height=844)
    wait_for_statistics(camera)
    camera.save("viewer_narrow")


def take_panels(camera, url, query):
    for width, height in ((1280, 720), (390, 844)):
        for dark in (False, True):
            camera.at(url, f"#heads=2.0,1.1&query={query}&colour=prev", width=width, height=height, dark=dark)
            wait_for_statistics(camera)
            for panel in ("texts", "heads", "matrix", "row"):
                camera.run(f"document.getElementById('{panel}').scrollIntoView()")
                camera.save(f"panel_{panel}_{width}{'_dark' if dark else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qkscope")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--text-file", type=Path)
    parser.add_argument("--panels", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qkscope-viewer-") as place:
        text = Path(place) / "diary.txt"
        lines = (ROOT / "share" / "demo" / "corpus.jsonl").read_text().splitlines()
        text.write_text("\n\n".join(json.loads(line)["text"] for line in lines[:TEXTS]))
        models = ["--model", options.model or CHECKPOINTS / "LC2-1200"]
        if not options.model:
            models += ["--checkpoint", CHECKPOINTS / "S1-40"]
        with served(options.qkscope, *models, "--text-file", options.text_file or text) as url, Camera(options.folder) as camera:
            camera.use_window(1280, 720)
            camera.open(url)
            camera.wait_for_row()
            tokens = camera.run("source.info().then((info) => info.tokens.length)")
            if options.model:
                wait_for_statistics(camera)
                camera.run("new Promise((done) => setTimeout(done, 20000))")  # the statistics of all layers
                camera.save(f"viewer_{options.model.stem}")
            else:
                take(camera, url, tokens)
            if options.panels:
                take_panels(camera, url, tokens * 2 // 3)
            if camera.complaints:
                sys.exit(f"the page complained: {camera.complaints}")


if __name__ == "__main__":
    main()
