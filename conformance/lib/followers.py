"""Clients in other languages that follow a cluster: programs that are told what may go wrong, and say what they did.

`cargo xtask suite cluster-sdk` names them in `SETTEE_FOLLOWERS`. Each is started with seeds, a name and buckets. A
writer prints `round N` when it has written and read all of its documents, `trouble ...` for what should not be, and
`done N` at the end; a reader of change streams prints `shows {...}` for each line of its input.
"""

import json
import os
import queue
import subprocess
import threading

from harness import end_with_parent, eventually

PROGRAMS = json.loads(os.environ.get("SETTEE_FOLLOWERS", "{}"))


class Follower:
    """One program."""

    def __init__(self, program, seeds, name, buckets):
        self.name = name
        self.rounds, self.ambiguous, self.trouble, self.others = 0, [], [], []
        self.heard, self.shown = set(), queue.Queue()
        how = PROGRAMS[program]
        self.process = subprocess.Popen(
            [*how["command"], "follow", seeds, name, *buckets], cwd=how["folder"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=end_with_parent,
            # As a cluster makes its buckets in tests.
            env={**os.environ, "SETTEE_FEW_VBUCKETS": "1"},
        )  # fmt: skip
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word in ("round", "done"):
                self.rounds = int(rest)
                self.heard.add(word)
            elif word == "told":
                self.heard.add(rest)
            elif word == "shows":
                self.shown.put(json.loads(rest))
            elif word == "ambiguous":
                self.ambiguous.append(rest)
            elif word == "trouble":
                self.trouble.append(rest)
            else:
                self.others.append(line)

    def well(self):
        """Fails if the program said that something was wrong, or ended."""
        if self.trouble:
            raise AssertionError(f"{self.name}: {len(self.trouble)} troubles: {self.trouble[:3]}")
        if self.process.poll() is not None and "done" not in self.heard:
            raise AssertionError(f"{self.name} ended: {''.join(self.others[-20:])}")

    def say(self, word):
        self.well()
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def tell(self, word):
        """Says a word, and waits until it was heard."""
        self.heard.discard(word)
        self.say(word)
        eventually(f"{self.name} heard {word}", lambda: word in self.heard)

    def begins(self, seconds):
        """Waits for the first round."""
        wait(self, "its first round", lambda: self.rounds > 0, seconds)

    def goes_on(self, rounds, seconds):
        """Waits until so many more rounds are over, all of which began after this was called but one."""
        wanted = self.rounds + rounds + 1
        wait(self, f"round {wanted}", lambda: self.rounds >= wanted, seconds)

    def show(self):
        """What a reader of change streams came to, by bucket."""
        self.say("show")
        return self.shown.get(timeout=30)

    def stop(self):
        """Ends it once it has read all that it wrote."""
        self.say("stop")
        wait(self, "its end", lambda: "done" in self.heard, 60)
        self.process.wait(30)
        self.well()


def wait(follower, what, probe, seconds):
    """Waits for something of a follower, as long as it is well."""

    def there():
        return bool(follower.trouble) or follower.process.poll() is not None or probe()

    try:
        eventually(f"{follower.name}: {what}", there, seconds=seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; {follower.others[-5:]}") from None
    follower.well()
