"""Seeded simulation: runs the programs on a simulated disk, clock, network, Hub, object store and scheduler, with faults that
one number, the seed, determines.

simulate.py BUILD_FOLDER [--seeds N] [--first N] [--only SCENARIO]     seeds 1 to N, in parallel
simulate.py BUILD_FOLDER --seed N                                      one seed, with its log

A seed chooses a scenario (scenarios.py), repeats its commands with faults a few times, and then runs them without faults.
Faults: a kill before any file operation; a power cut, which loses, tears and reorders what was not synced; full disks, I/O
errors, short writes; clocks that are wrong; equal process ids; no flock; tasks that are started twice, at once or after they
ended; answers of a server that are lost, cut off, damaged, slow, or refused.

Invariants, checked after every command: data that is marked as finished is complete and equal to that of a run without faults;
files of others are unchanged; exit code 0 means finished, 1 that a fault was injected and the same command may be repeated,
and 2 only that another task was at work.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "input/hub")]
import scenarios  # noqa: E402
from scenarios import Violation  # noqa: E402
from servers import SimulatedHub, SimulatedStore  # noqa: E402

SECONDS = 120  # a command that takes longer hangs


class World:
    """The simulated machines of one seed."""

    def __init__(self, base, seed):
        self.base, self.seed = base, seed
        self.random = random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=base.folder))
        self.disk, self.before = self.folder / "disk", self.folder / "before"
        self.record = self.folder / "record"
        self.log, self.counts = [], collections.Counter()
        self.steps = 0
        self.concurrent = False  # whether commands ran at the same time: their operations have no common order
        self.disk.mkdir()
        self.hub, self.store = base.hub, base.store
        self.record.touch()

    def say(self, line):
        self.log.append(line)

    def begin(self):
        """Declares that the current files of the disk are synced."""
        shutil.rmtree(self.before, ignore_errors=True)
        shutil.copytree(self.disk, self.before, symlinks=True)
        self.record.write_bytes(b"")

    def environment(self, faults, log, more):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "XDG_", "AWS_", "QKSCOPE_", "SLURM_"))}
        clean.update(HOME=str(self.folder), HF_HOME=str(self.disk / "hf"), HF_ENDPOINT=self.hub.endpoint,
                     HF_TOKEN=self.hub.token, NO_PROXY="127.0.0.1", LD_PRELOAD=str(self.base.build / "tests/simulated_system.so"),
                     QKSCOPE_RECORD_BELOW=f"{self.disk}/", QKSCOPE_RECORD_TO=str(self.record), QKSCOPE_FAULT_LOG=str(log),
                     QKSCOPE_FAULTS=" ".join([str(self.random.getrandbits(62)), *(f"{k}={v}" for k, v in faults.items())]),
                     **self.store.environment())
        clean.update(more)
        return clean

    def start(self, task, faults):
        self.steps += 1
        log = self.folder / f"faults-{self.steps}"
        log.touch()
        words = [self.base.build / "bin/qkscope", *map(str, task.words)]
        process = subprocess.Popen(words, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment(faults, log, task.environment))
        self.say(f"{self.steps}: qkscope {' '.join(map(str, task.words))}".replace(str(self.folder), "."))
        self.say(f"   drawn: {faults}")
        return process, log

    def finish(self, task, process, log, alone):
        """Waits for a command and checks its exit code. Returns whether the command succeeded."""
        try:
            out = process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            raise Violation(f"{task.words[0]} hangs: {process.communicate()[0]}") from None
        code = process.returncode
        faults, network = log.read_text().splitlines(), len(self.hub.injected) + len(self.store.injected)
        for line in faults:
            self.counts[line.split(":")[0]] += 1
        self.counts["commands"] += 1
        self.log += [f"   {line}" for line in faults] + [f"   exit code {code}", *(f"   | {line}" for line in out.splitlines())]
        serious = [line for line in faults if not line.startswith("short write")]
        if code == 0:
            return True
        if code == -9 and faults and any(line.startswith("kill") for line in faults):
            return False
        if code == 1 and (serious or network) and "error" in out:
            return False
        if code in (1, 2) and not alone and task.may_be_refused(out):
            self.counts["refused while another task was at work"] += 1
            return False
        raise Violation(f"exit code {code} of {task.words[0]} after {len(serious)} faults of the disk and {network} of the network")

    def cut_power(self):
        if self.concurrent:
            return
        self.counts["power cut"] += 1
        self.say("   power cut")
        subprocess.run([self.base.build / "tests/cut_power", self.before, self.record, self.disk, str(self.random.getrandbits(31))],
                       check=True)

    def draw_faults(self):
        chance = self.random
        faults = {"kill": round(10 ** chance.uniform(2.5, 5)) if chance.random() < 0.65 else 0,
                  "error": round(10 ** chance.uniform(2, 4.5)) if chance.random() < 0.25 else 0,
                  "short": round(10 ** chance.uniform(3, 5.5)) if chance.random() < 0.5 else 0,
                  "space": round(10 ** chance.uniform(2.5, 5.5)) if chance.random() < 0.2 else 0,
                  "flock": chance.choice((38, 37, 95, 5)) if chance.random() < 0.08 else 0,  # ENOSYS, ENOLCK, ENOTSUP, EIO
                  "slow": round(10 ** chance.uniform(3, 5.5)) if chance.random() < 0.3 else 0,
                  "pid": 4242 if chance.random() < 0.5 else 0,
                  "clock": chance.randrange(-10 ** 9, 10 ** 9) if chance.random() < 0.5 else 0}
        return {name: value for name, value in faults.items() if value}

    def step(self, tasks, faulty):
        """Runs tasks at the same time and returns those that succeeded."""
        network = 10 ** self.random.uniform(-2, -0.3) if faulty and self.random.random() < 0.8 else 0
        for server in (self.hub, self.store):
            server.begin(self.random.getrandbits(62), network)
        self.concurrent = self.concurrent or len(tasks) > 1
        running = [(task, *self.start(task, self.draw_faults() if faulty else {})) for task in tasks]
        ended, violation = [], None
        for task, process, log in running:
            try:
                if self.finish(task, process, log, alone=len(tasks) == 1):
                    ended.append(task.stands_for or task)
                killed = process.returncode == -9
            except Violation as error:
                violation = violation or error
        for line in self.hub.injected + self.store.injected:
            self.counts["network: " + line.split(":")[0]] += 1
            self.say(f"   network: {line}")
        if violation:
            raise violation
        if killed and self.random.random() < 0.5:
            self.cut_power()
        return ended

    def run(self):
        """Runs one seed."""
        names = self.base.names
        name = self.random.choices(names, [scenarios.ALL[name].weight for name in names])[0]
        scenario = scenarios.ALL[name](self)
        self.counts[f"scenario {name}"] += 1
        self.say(f"seed {self.seed}: {name}")
        scenario.prepare()
        self.begin()
        faulty = self.random.randint(1, 4)
        for stage in scenario.stages():
            done = set()
            while len(done) < len(stage):
                faulty -= 1
                left = [task for task in stage if task not in done]
                tasks = [scenario.variant(self.random.choice(left))]
                if faulty >= 0 and self.random.random() < scenario.together:
                    tasks.append(self.random.choice(stage))  # the same task twice, or another one at the same time
                ended = self.step(tasks, faulty >= 0)
                if scenario.shares and len(ended) < len(tasks):
                    ended = []
                scenario.check()
                if faulty < 0 and not ended:
                    raise Violation("the command does not succeed without faults")
                done.update(ended)
        if not scenario.is_complete():
            raise Violation("all tasks ended with exit code 0, but the output is not complete")
        again = self.random.choice(scenario.stages()[-1])  # a task that a scheduler starts once more
        if not self.step([again], False):
            raise Violation("a finished task fails when it is started again")
        scenario.check()
        scenario.check_end()


class Base:
    """What all seeds of one process share: inputs, servers and the outputs of runs without faults."""

    def __init__(self, build, folder, names):
        self.build, self.folder, self.names = build, pathlib.Path(folder), names
        self.hub, self.store = SimulatedHub(), SimulatedStore()
        self.inputs = self.folder / "inputs"
        self.clean = {}

    def run_seed(self, seed):
        """Returns seed, log, counts and the violation or None."""
        self.hub.clear()
        self.store.clear()
        world = World(self, seed)
        trouble = None
        try:
            world.run()
            shutil.rmtree(world.folder)
        except Violation as error:
            trouble = str(error)
        except Exception:
            trouble = traceback.format_exc()
        if trouble:
            world.say(f"VIOLATION: {trouble}\nfiles: {world.folder}")
        return seed, world.log, world.counts, trouble


base = None


def set_up(build, folder, names):
    global base
    base = Base(build, folder, names)
    scenarios.load_inputs(base)


def run_seed(seed):
    return base.run_seed(seed)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve(), help="build folder")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="run one seed and print its log")
    parser.add_argument("--only", choices=sorted(scenarios.ALL), help="this scenario alone; a seed then does something else")
    parser.add_argument("--without", action="append", default=[], choices=sorted(scenarios.ALL), help="leave a scenario out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args()


def main():
    options = parse_options()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="qkscope-simulation-", dir=memory)
    begin, failed, counts = time.monotonic(), [], collections.Counter()
    scenarios.make_inputs(options.build, pathlib.Path(folder))
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    names = [options.only] if options.only else sorted(set(scenarios.ALL) - set(options.without))
    with concurrent.futures.ProcessPoolExecutor(min(options.jobs, len(seeds)), initializer=set_up,
                                                initargs=(options.build, folder, names)) as pool:
        for seed, log, counted, trouble in pool.map(run_seed, seeds):
            counts.update(counted)
            if trouble or options.seed is not None:
                print("\n".join(log))
            if trouble:
                failed.append(seed)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{len(seeds)} seeds in {time.monotonic() - begin:.0f} s ({sum(u.ru_utime + u.ru_stime for u in used):.0f} s of CPU)")
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    if failed:
        print(f"{len(failed)} seeds failed: {' '.join(map(str, failed))}\none alone: {sys.argv[0]} {options.build} --seed N")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
