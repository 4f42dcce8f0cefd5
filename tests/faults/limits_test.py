"""Limits and oddities of containers and clusters: few threads, little memory, small files, no flock, equal process ids.

    limits_test.py PROGRAM fault_preload.so [TEST ...]

A test whose limit this machine cannot set is skipped with the reason.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from workspace import COMMANDS, files_of, prepare, remove, run

PROGRAM, PRELOAD = (str(Path(argument).resolve()) for argument in sys.argv[1:3])
WRITERS = ["heads", "capture", "shards", "stats", "analyze", "sweep"]


def command(name):
    return next((line, output) for known, line, output in COMMANDS if known == name)


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = Path(tempfile.mkdtemp(prefix="qkscope-limits-"))
        prepare(cls.root / "clean", PROGRAM)
        cls.expected = {}
        for name, line, output in COMMANDS:
            if name in [*WRITERS, "synth", "inspect"]:
                done = run(PROGRAM, line, cls.root / "clean")
                assert done.returncode == 0, done.stderr.decode()
                cls.expected[name] = files_of(cls.root / "clean" / output) if output else None

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(dir=self.root)) / "work"
        shutil.copytree(self.root / "clean", self.folder)

    def start_again(self, name):
        """Removes the output of a command and returns its command line."""
        line, output = command(name)
        if output:
            remove(self.folder / output)
        return line

    def assert_output(self, name):
        self.assertEqual(files_of(self.folder / command(name)[1]), self.expected[name], name)

    def limited(self, name, kind, limit):
        """Runs a command under a limit of resources; returns its exit code and messages."""
        done = run(PROGRAM, self.start_again(name), self.folder,
                   preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)))
        return done.returncode, done.stderr.decode()

    def test_fewer_threads_give_the_same_bytes(self):
        for name in WRITERS:
            for first in (1, 2, 4):
                done = run(PROGRAM, self.start_again(name), self.folder,
                           {"LD_PRELOAD": PRELOAD, "QKSCOPE_FAULT": f"thread {first}+"})
                self.assertEqual(done.returncode, 0, f"{name}, from thread {first} on: {done.stderr.decode()}")
                self.assert_output(name)

    def test_a_real_limit_of_processes_gives_the_same_bytes(self):
        user = 60001  # has no other processes that count towards its limit

        def limit_and_change_user():
            resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
            os.setresuid(user, user, user)

        if os.getuid() != 0:
            self.skipTest("only root can become a user without other processes")
        for path in [self.root, self.folder.parent, self.folder, *self.folder.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        line = self.start_again("capture")
        try:
            done = run(PROGRAM, line, self.folder, preexec_fn=limit_and_change_user)
        except PermissionError as error:
            self.skipTest(f"another user may not run the program: {error}")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assert_output("capture")

    def test_little_memory_is_reported(self):
        ended = 0
        for name in ("inspect", "capture", "analyze"):
            for megabytes in range(100, 700, 50):
                code, message = self.limited(name, resource.RLIMIT_AS, megabytes << 20)
                if code == 127:  # the libraries themselves do not fit
                    continue
                self.assertIn(code, (0, 1), f"{name} in {megabytes} MB: {message}")
                ended += "out of memory" in message
                if code == 0:
                    break
        self.assertGreater(ended, 0)

    def test_small_files_are_reported_and_the_next_run_is_whole(self):
        for name in ("capture", "stats", "analyze", "heads"):
            code, message = self.limited(name, resource.RLIMIT_FSIZE, 512)
            self.assertEqual(code, 1, f"{name}: {message}")
            self.assertIn("File too large", message)
            line, _ = command(name)
            self.assertEqual(run(PROGRAM, line, self.folder).returncode, 0)
            self.assert_output(name)

    def test_a_file_system_without_flock_is_reported(self):
        no_flock = {"LD_PRELOAD": PRELOAD, "QKSCOPE_FAULT": "flock 1+"}
        for name in ("capture", "stats", "sweep"):
            done = run(PROGRAM, self.start_again(name), self.folder, no_flock)
            self.assertEqual(done.returncode, 1, name)
            self.assertIn("cannot lock", done.stderr.decode())
            done = run(PROGRAM, self.start_again(name), self.folder, no_flock | {"QKSCOPE_NO_LOCK": "1"})
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assert_output(name)

    def test_tasks_with_equal_process_ids_share_a_folder(self):
        alone = ["unshare", "--pid", "--fork", "--kill-child"] + ([] if os.getuid() == 0 else ["--map-root-user"])
        if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
            self.skipTest("this machine allows no new process namespaces")
        self.start_again("shards")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "HF_HUB_OFFLINE": "1"}
        shards = 6
        tasks = [subprocess.Popen([*alone, PROGRAM, "capture", "--config", "shards.yaml", "--shard", f"{i}/{shards}",
                                   "--threads", "1"], cwd=self.folder, env=environment, stderr=subprocess.PIPE)
                 for i in range(shards)]
        for task in tasks:
            message = task.communicate()[1].decode()
            self.assertEqual(task.returncode, 0, message)
        done = run(PROGRAM, "merge shards", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assert_output("shards")

    def test_a_quota_of_the_cgroup_bounds_the_threads(self):
        group = Path("/sys/fs/cgroup") / f"qkscope-test-{os.getpid()}"
        try:
            group.mkdir()
            self.addCleanup(group.rmdir)
            with open(group / "cpu.max", "r+") as limit:  # fails where no cgroup of version 2 is mounted
                limit.write("100000 100000")
        except OSError as error:
            self.skipTest(f"this machine lets nobody make a cgroup with a quota: {error}")
        counts = self.root / "threads.counts"
        line, _ = command("inspect")
        script = f"echo $$ >'{group}/cgroup.procs'; exec '{PROGRAM}' {line}"
        subprocess.run(["sh", "-c", script], cwd=self.folder, check=True, capture_output=True,
                       env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": PRELOAD, "QKSCOPE_FAULT_COUNTS": str(counts)})
        threads = int.from_bytes(counts.read_bytes()[5 * 8:6 * 8], "little")
        self.assertEqual(threads, 0, "one core: no thread beside the main one")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
