"""What a disk may hold after a power cut, told from the record of what a process did to its files.

Strict POSIX: the bytes of a file are there once that file was synced, a name once its directory was. Of
everything else any part may be there: a name or none, a page in any of the versions that it had since, or torn.
A sync that failed leaves its pages clean: they reach the disk only when they are written again.
"""

import os
import struct

PAGE, SECTOR = 4096, 512
ZEROS = bytes(PAGE)
HEAD = struct.Struct("=BHHQQQ")


class File:
    """The bytes of a file: as the process sees them, and as they are for good."""

    def __init__(self):
        self.pages, self.size = {}, 0
        self.durable, self.durable_size = {}, 0
        # Since the last sync: versions of each page, and lengths, each with its number.
        self.dirty, self.sizes = {}, []

    def set_page(self, number, content, now):
        self.pages[number] = content
        self.dirty.setdefault(number, []).append((now, content))

    def write(self, at, data, now):
        end = at + len(data)
        for number in range(at // PAGE, (end + PAGE - 1) // PAGE):
            start = number * PAGE
            low, high = max(at, start), min(end, start + PAGE)
            piece = data[low - at : high - at]
            if len(piece) < PAGE:
                old = self.pages.get(number, ZEROS)
                piece = old[: low - start] + piece + old[high - start :]
            self.set_page(number, piece, now)
        if end > self.size:
            self.size = end
            self.sizes.append((now, end))

    def truncate(self, size, now):
        if size < self.size:
            for number in [number for number in self.pages if (number + 1) * PAGE > size]:
                keep = max(0, size - number * PAGE)
                self.set_page(number, self.pages[number][:keep] + bytes(PAGE - keep), now)
                if keep == 0:
                    del self.pages[number]
        self.size = size
        self.sizes.append((now, size))

    def synced(self, until):
        """All that was written until then is on disk."""
        for number, versions in list(self.dirty.items()):
            done = [content for at, content in versions if at <= until]
            if done:
                self.durable[number] = done[-1]
                self._forget(number, versions, until)
        done = [size for at, size in self.sizes if at <= until]
        if done:
            self.durable_size = done[-1]
            self.sizes = [(at, size) for at, size in self.sizes if at > until]

    def failed(self, until, chance):
        """A sync failed: some of it is on disk, the rest will never be."""
        reached = chance.choice((0, 0, 0.5))
        for number, versions in list(self.dirty.items()):
            done = [content for at, content in versions if at <= until]
            if done:
                if chance.random() < reached:
                    self.durable[number] = chance.choice(done)
                self._forget(number, versions, until)

    def _forget(self, number, versions, until):
        rest = [(at, content) for at, content in versions if at > until]
        if rest:
            self.dirty[number] = rest
        else:
            del self.dirty[number]

    def draw(self, how, chance):
        """Pages and length that may be found."""
        if not self.dirty and not self.sizes or how == "none":
            return self.durable, self.durable_size
        pages = dict(self.durable)
        sizes = [self.durable_size, *(size for _, size in self.sizes)]
        if how == "all":
            pages.update((number, versions[-1][1]) for number, versions in self.dirty.items())
            return pages, sizes[-1]
        share = chance.choice((0.1, 0.5, 0.9))
        for number, versions in self.dirty.items():
            if chance.random() < share:
                pages[number] = chance.choice(versions)[1]
                if chance.random() < 0.2:
                    pages[number] = torn(self.durable.get(number, ZEROS), pages[number], chance)
        return pages, chance.choice(sizes)


def torn(old, new, chance):
    """A page of which some sectors are there."""
    both = (old, new)
    return b"".join(chance.choice(both)[at : at + SECTOR] for at in range(0, PAGE, SECTOR))


class Folder:
    """The names in a directory: as the process sees them, and as they are for good."""

    def __init__(self):
        self.names, self.durable = {}, {}
        # Since the last sync: number, names that changed with what they are now, what moved.
        self.pending = []

    def change(self, names, moved, now):
        for name, node in names.items():
            set_name(self.names, name, node)
        self.pending.append((now, names, moved))

    def synced(self, until):
        for at, names, _ in self.pending:
            if at <= until:
                for name, node in names.items():
                    set_name(self.durable, name, node)
        self.pending = [change for change in self.pending if change[0] > until]

    def draw(self, how, chance):
        if not self.pending or how == "none":
            return self.durable
        if how == "all":
            return self.names
        count = len(self.pending)
        if chance.random() < 0.5:
            taken = set(range(chance.randrange(count + 1)))
        else:
            taken = {at for at in range(count) if chance.random() < 0.5}
        # What has another name now, has it in place of the one before.
        for at in sorted(taken, reverse=True):
            moved = self.pending[at][2]
            if moved is not None:
                taken |= {before for before in range(at) if moved in self.pending[before][1].values()}
        drawn = dict(self.durable)
        for at in sorted(taken):
            for name, node in self.pending[at][1].items():
                set_name(drawn, name, node)
        return drawn


def set_name(names, name, node):
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Disk:
    """Everything below one directory, as a record tells it."""

    def __init__(self, root, chance):
        self.root_path, self.chance = os.path.abspath(root), chance
        self.root, self.now = Folder(), 0
        self.nodes = {os.lstat(root).st_ino: self.root}
        self.begun = {}
        self.syncs_failed = 0

    def place(self, path):
        """The directory that a path lies in, and its name there."""
        *folders, name = os.path.relpath(path, self.root_path).split("/")
        folder = self.root
        for part in folders:
            folder = folder.names[part]
        return folder, name

    def apply(self, operation, path, second, inode, at, data):
        self.now += 1
        getattr(self, f"_{operation}")(path, second, inode, at, data)

    def _made(self, path, inode, node):
        self.nodes[inode] = node
        folder, name = self.place(path)
        folder.change({name: node}, None, self.now)

    def _c(self, path, _second, inode, _at, _data):
        self._made(path, inode, File())

    def _m(self, path, _second, inode, _at, _data):
        self._made(path, inode, Folder())

    def _w(self, _path, _second, inode, at, data):
        self.nodes[inode].write(at, data, self.now)

    def _t(self, _path, _second, inode, at, _data):
        self.nodes[inode].truncate(at, self.now)

    def _r(self, path, second, _inode, _at, _data):
        (folder, name), (target, other) = self.place(path), self.place(second)
        assert folder is target, f"{path} moves to another directory, {second}"
        node = folder.names[name]
        folder.change({name: None, other: node}, node, self.now)

    def _u(self, path, _second, _inode, _at, _data):
        folder, name = self.place(path)
        folder.change({name: None}, None, self.now)

    _d = _u

    def _b(self, _path, _second, _inode, thread, _data):
        self.begun[thread] = self.now

    def _s(self, _path, _second, inode, thread, _data):
        self.nodes[inode].synced(self.begun.pop(thread))

    def _f(self, _path, _second, inode, thread, _data):
        begun, node = self.begun.pop(thread), self.nodes[inode]
        self.syncs_failed += 1
        if isinstance(node, File):
            node.failed(begun, self.chance)

    def _x(self, path, _second, _inode, call, _data):
        raise AssertionError(f"{path}: system call {call} is not understood")

    def image(self, to, how, chance):
        """Writes what a power cut may leave; `how` is none, all, names, content or some."""
        names = {"names": "all", "content": "none"}.get(how, how)
        content = {"names": "none", "content": "all"}.get(how, how)
        self._write(self.root, to, (names, content), chance)

    def _write(self, folder, to, how, chance):
        os.mkdir(to)
        for name, node in folder.draw(how[0], chance).items():
            path = os.path.join(to, name)
            if isinstance(node, Folder):
                self._write(node, path, how, chance)
            else:
                write_file(path, *node.draw(how[1], chance))

    def complete(self):
        """Does what the directory has and the record does not tell: a kill came between doing and telling."""
        for one in self._differences():
            self.apply(*one)
            yield one

    def _differences(self, folder=None, path=None):
        folder, path = folder or self.root, path or self.root_path
        found = {entry.name: entry for entry in os.scandir(path)}
        gone = {name: node for name, node in folder.names.items() if name not in found}
        for name, entry in found.items():
            # Inodes are used again: a node that lies in no directory any more is another one.
            known = self.nodes.get(entry.inode())
            same = known is not None and isinstance(known, Folder) == entry.is_dir()
            before = next((old for old, node in gone.items() if same and node is known), None)
            if before is not None:
                del gone[before]
                yield "r", f"{path}/{before}", entry.path, 0, 0, b""
        for name, node in gone.items():
            yield ("d" if isinstance(node, Folder) else "u"), f"{path}/{name}", "", 0, 0, b""
        for name, entry in found.items():
            node, inode = folder.names.get(name), entry.inode()
            if node is None or self.nodes.get(inode) is not node:
                yield ("m" if entry.is_dir() else "c"), entry.path, "", inode, 0, b""
                node = folder.names[name]
            if entry.is_dir():
                yield from self._differences(node, entry.path)
            else:
                yield from file_differences(node, entry.path, inode)


def file_differences(node, path, inode):
    content = open(path, "rb").read()
    for number in range(-(-len(content) // PAGE)):
        piece = content[number * PAGE : (number + 1) * PAGE]
        if node.pages.get(number, ZEROS)[: len(piece)] != piece:
            yield "w", path, "", inode, number * PAGE, piece
    if node.size != len(content):
        yield "t", path, "", inode, len(content), b""


def write_file(path, pages, size):
    with open(path, "wb") as file:
        run, start = [], None
        for number in sorted(number for number in pages if number * PAGE < size):
            if run and number != start + len(run):
                file.seek(start * PAGE)
                file.write(b"".join(run))
                run = []
            if not run:
                start = number
            run.append(pages[number])
        if run:
            file.seek(start * PAGE)
            file.write(b"".join(run))
        file.truncate(size)


def records(path, start=0):
    """Those of a file from an offset on, each with the offset behind it."""
    with open(path, "rb") as file:
        file.seek(start)
        while len(head := file.read(HEAD.size)) == HEAD.size:
            operation, path_length, second_length, inode, at, length = HEAD.unpack(head)
            path, second = file.read(path_length).decode(), file.read(second_length).decode()
            data = file.read(length)
            start += HEAD.size + path_length + second_length + length
            yield start, (chr(operation), path, second, inode, at, data)


def record(operation, path, second, inode, at, data):
    """One as the file has it."""
    names = [name.encode() for name in (path, second)]
    return HEAD.pack(ord(operation), *map(len, names), inode, at, len(data)) + b"".join(names) + data
