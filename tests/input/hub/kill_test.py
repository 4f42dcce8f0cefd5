"""Kills downloads and uploads at random moments: the next call completes and nothing is corrupt.

kill_test.py BIN_FOLDER [--kills N]
"""

import hashlib
import pathlib
import random
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
KILLS = 50
if "--kills" in sys.argv:
    at = sys.argv.index("--kills")
    KILLS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
from hub_test_case import HubTestCase, main, tiny_checkpoint  # noqa: E402
from publish_test import PublishTestCase  # noqa: E402
from stand_in_server import Body  # noqa: E402


class KillTestCase(HubTestCase):
    def kill_often(self, command, check, finished):
        """Runs the command until KILLS runs were killed at a random time. Calls `check` after every run and
        `finished` after a run that completed before the kill; the last run is not killed."""
        random_time = random.Random(7)
        begin = time.monotonic()
        self.run_program(*command)
        duration = time.monotonic() - begin
        finished()
        kills = completed = 0
        while kills < KILLS:
            process = self.start(*command)
            time.sleep(duration * random_time.random())
            process.kill()
            out, err = process.communicate(timeout=60)
            check()
            if process.returncode == -9:
                kills += 1
                continue
            self.assertEqual(process.returncode, 0, out + err)
            finished()
            completed += 1
        self.run_program(*command)
        finished()
        print(f"{kills} runs killed, {completed} completed before the kill")


class KilledDownload(KillTestCase):
    def test_the_next_call_completes(self):
        weights = random.Random(1).randbytes(600_000)
        files = {**tiny_checkpoint(), "model.safetensors": weights}
        self.hub.model("org/tiny").put(files)
        self.hub.throttle = Body(piece=30_000, pause=0.01)

        def check():
            for blob in self.cache.glob("models--org--tiny/blobs/*"):
                content = blob.read_bytes()
                sums = (hashlib.sha256(content).hexdigest(),
                        hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
                self.assertTrue(blob.suffix == ".incomplete" or blob.name in sums, blob)
            for link in self.cache.glob("models--org--tiny/snapshots/*/*"):
                if link.suffix != ".tmp":
                    self.assertTrue(link.exists(), f"{link} leads nowhere")

        def finished():
            check()
            self.assert_whole()
            shutil.rmtree(self.cache)

        self.kill_often(("hub", "download", "org/tiny"), check, finished)

    def assert_whole(self):
        folder = self.snapshot()
        for name, content in self.hub.repositories[("models", "org/tiny")].files().items():
            self.assertEqual((folder / name).read_bytes(), content)


class KilledUpload(PublishTestCase, KillTestCase):
    def test_the_next_call_completes(self):
        self.capture(heads=6)
        self.hub.upload_pause = 0.03
        whole = self.contents()

        def check():
            if ("datasets", "org/vectors") not in self.hub.repositories:
                return
            there = self.repository.files("tiny-texts") if "tiny-texts" in self.repository.branches else {}
            there.pop(".gitattributes", None)
            there = there if set(there) != {"README.md"} else {}  # as main has it
            self.assertIn(there, ({}, whole), "the branch holds a part of the capture")

        def finished():
            self.assert_published()
            self.assertLessEqual(len(self.commits()), 1)
            self.hub.repositories.clear()
            self.hub.objects.clear()

        command = ("hub", "publish", self.folder / "capture", "--repo", "org/vectors", "--branch", "tiny-texts")
        self.kill_often(command, check, finished)


del KillTestCase, PublishTestCase, HubTestCase  # not tests themselves
if __name__ == "__main__":
    main()
