"""A network between two nodes that can be slow, stand still, or be cut."""

import selectors
import socket
import threading
import time

CHUNK = 65536
SEEN_BYTES = 1 << 22


class Wire(threading.Thread):
    """Carries bytes between whoever connects to `port` and the port that it leads to.

    `flow`: everything passes. `freeze`: connections stay open and nothing comes any more.
    `slow`: what comes lies so many seconds. `cut`: what was there is reset, perhaps in the middle of a
    message, and nobody gets through. `stall_after`: a connection stays open and stands still once so many bytes came
    back on it; others are not touched. `seen` is the end of what passed.
    """

    def __init__(self, to, host="127.0.0.1"):
        super().__init__(daemon=True)
        self.to, self.delay, self.state = to, 0.0, "flow"
        self.turn = threading.Lock()
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.ends = {}
        self.far = set()
        self.allowed = None
        self.seen = b""
        self.closed = False
        self.start()

    def flow(self):
        self._become("flow")

    def slow(self, seconds):
        self._become("flow", seconds)

    def freeze(self):
        self._become("freeze")

    def cut(self):
        self._become("cut")

    def stall_after(self, count):
        with self.turn:
            self.allowed = count

    def close(self):
        self.closed = True
        self.join(10)
        self.listener.close()

    def _become(self, state, delay=0.0):
        with self.turn:
            self.state, self.delay = state, delay
            if state == "cut":
                for end in list(self.ends):
                    self._drop(end)

    def run(self):
        while not self.closed:
            ready = self.selector.select(0.02)
            with self.turn:
                if self.state == "freeze":
                    ready = []
                for key, _ in ready:
                    if key.fileobj is self.listener:
                        self._accept()
                    elif key.fileobj in self.ends:
                        self._carry(key.fileobj)
            if not ready:
                time.sleep(0.001)
        with self.turn:
            for end in list(self.ends):
                self._drop(end)

    def _accept(self):
        near, _ = self.listener.accept()
        if self.state == "cut":
            near.close()
            return
        try:
            far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
        except OSError:
            near.close()
            return
        self.far.add(far)
        for end, other in ((near, far), (far, near)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(5)
            self.ends[end] = other
            self.selector.register(end, selectors.EVENT_READ)

    def _carry(self, end):
        if self.delay:
            time.sleep(self.delay)
        try:
            data = end.recv(CHUNK)
            if data:
                self.seen = (self.seen + data)[-SEEN_BYTES:]
                self._send(end, data)
                return
        except OSError:
            pass
        self._drop(end)

    def _send(self, end, data):
        other = self.ends[end]
        if self.allowed is not None and end in self.far:
            data = data[: self.allowed]
            self.allowed -= len(data)
            if self.allowed == 0:
                self.allowed = None
                for one in (end, other):
                    self.selector.unregister(one)
        other.sendall(data)

    def _drop(self, end):
        for one in (end, self.ends.get(end)):
            if one in self.ends:
                if one.fileno() in self.selector.get_map():
                    self.selector.unregister(one)
                del self.ends[one]
                self.far.discard(one)
                one.close()
