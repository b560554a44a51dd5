"""Which part of a cycle a stack belongs to: tables of system calls, modules and functions.

The innermost frame that a table knows decides. So what the Python runtime does for a parser is the
parser's, and what the kernel does in a system call is the call's, whoever made it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

READ: Final = "read from sockets"
PARSE: Final = "parse"
DIALECT: Final = "dialect: commands"
ENGINE: Final = "engine: decide and apply"
RECORDS: Final = "encode records"
FRAMES: Final = "frame and checksum"
WRITE: Final = "write the journal"
DISK: Final = "wait for the disk"
REPLIES: Final = "encode and hold replies"
SEND: Final = "send"
TURNS: Final = "turns and group commit"
METRICS: Final = "clock and metrics"
LOOP: Final = "event loop"
IDLE: Final = "wait for clients, or for a thread"
THREADS: Final = "locks between threads"
PREEMPTED: Final = "another program had the core"
OTHER: Final = "anything else"
PHASES: Final = (
    READ,
    PARSE,
    DIALECT,
    ENGINE,
    RECORDS,
    FRAMES,
    WRITE,
    DISK,
    REPLIES,
    SEND,
    TURNS,
    METRICS,
    LOOP,
    IDLE,
    THREADS,
    PREEMPTED,
    OTHER,
)

Kind = Literal["compiled", "runtime", "kernel", "waiting"]
"""What the time was spent in: our own code, Python and libraries, the kernel, nothing at all."""
KINDS: Final[tuple[Kind, ...]] = ("compiled", "runtime", "kernel", "waiting")

KERNEL: Final = "[kernel.kallsyms]"
_DISPATCH: Final = "do_syscall_64"
_ENTRIES: Final = re.compile(r"^(?:__x64_sys_|ksys_|__sys_|__se_sys_|do_)?(\w+?)(?:\.\w+)*$")
"""Each call has a function of its own, under one of these names when the compiler merged some."""
_SYSCALLS: Final = {
    "read": READ,
    "readv": READ,
    "recvfrom": READ,
    "recvmsg": READ,
    "write": SEND,
    "writev": SEND,
    "sendto": SEND,
    "sendmsg": SEND,
    "pwrite64": WRITE,
    "pwritev": WRITE,
    "pwritev2": WRITE,
    "fallocate": WRITE,
    "ftruncate": WRITE,
    "fdatasync": DISK,
    "fsync": DISK,
    "sync_file_range": DISK,
    "io_uring_enter": DISK,
    "epoll_wait": LOOP,
    "epoll_pwait": LOOP,
    "epoll_ctl": LOOP,
    "accept4": LOOP,
    "futex": THREADS,
}
_PACKAGES: Final = {
    "access": DIALECT,
    "broker": TURNS,
    "engine": ENGINE,
    "journal": FRAMES,
    "protocols": DIALECT,
    "server": LOOP,
}
_MODULES: Final = {
    "broker.interfaces": METRICS,
    "broker.metrics": METRICS,
    "broker.replies": REPLIES,
    "engine.records.entities": RECORDS,
    "engine.records.job_changes": RECORDS,
    "engine.records.job_lifecycle": RECORDS,
    "engine.records.log": RECORDS,
    "engine.records.snapshots": RECORDS,
    "engine.records.wire": RECORDS,
    "engine.structures.statistics": METRICS,
    "journal.cache": FRAMES,
    "journal.disk": WRITE,
    "journal.flush": DISK,
    "protocols.glovebox.bincode": PARSE,
    "protocols.http.connection": PARSE,
    "protocols.masenko.parsing": PARSE,
    "protocols.resp.wire": PARSE,
    "protocols.text": PARSE,
    "protocols.workq.messages": PARSE,
    "server.net.sending": SEND,
}
_FUNCTIONS: Final = {
    "protocols.connection.ProtocolConnection.send": REPLIES,
    "protocols.masenko.connection.MasenkoConnection.send_job": REPLIES,
    "protocols.resp.connection.RespConnection.send_job": REPLIES,
    "protocols.resp.connection.RespConnection.reply": REPLIES,
    "protocols.resp.connection.RespConnection.send_bulk": REPLIES,
    "protocols.resp.connection.RespConnection.send_nil": REPLIES,
    "protocols.resp.lists._PayloadReply.send_job": REPLIES,
    "protocols.resp.lists._ItemReply.send_job": REPLIES,
    "protocols.workq.connection.WorkqConnection.send_job": REPLIES,
    "journal.cache.BlockCache.read_from_block": REPLIES,
    "journal.cache.BlockCache.read": REPLIES,
    "journal.cache.DiskReads.read": REPLIES,
    "journal.disk.RealFile.sync": DISK,
    "journal.writer.Journal.read_blob": REPLIES,
    "server.net.connection.Connection.data_received": READ,
    "server.net.connection.Connection.write": SEND,
}
_LIBRARIES: Final = {"uvloop": LOOP, "google_crc32c": FRAMES, "httptools": PARSE, "picows": PARSE}


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a stack and the file that it is in."""

    symbol: str
    file: str

    @property
    def in_kernel(self) -> bool:
        return self.file == KERNEL


class Names:
    """Finds the Python function behind a symbol of the compiled form.

    mypyc names a C function after the module, the class and the function; of the module it takes
    as many parts as tell it from the others.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        """`modules` are the compiled ones, as "package.module" below `taskyard`."""
        self._modules = {module.replace(".", "___"): module for module in modules}
        for module in modules:
            self._modules.setdefault(module.rpartition(".")[2], module)
        self._known: dict[str, str] = {}

    def function(self, symbol: str) -> str:
        """The function as "package.module.Class.function"; "" for any other symbol."""
        known = self._known.get(symbol)
        if known is None:
            known = self._known[symbol] = self._find(symbol)
        return known

    def _find(self, symbol: str) -> str:
        head, _, rest = symbol.partition("_")
        if not head.startswith("CPy") or not rest:
            return ""
        # A name that begins with an underscore follows its separator: the first three are that.
        for prefix in sorted(self._modules, key=len, reverse=True):
            if rest.startswith(prefix + "___"):
                inner = rest[len(prefix) + 3 :].split(".", 1)[0]
                return f"{self._modules[prefix]}.{_dotted(inner)}"
        return ""


def _dotted(name: str) -> str:
    """`Outbox____stamp` as `ReplyQueue._record_timing`; a name's own leading underscores stay."""
    owner, separator, rest = name.partition("___")
    return f"{owner}.{rest}" if separator and owner else name


class Classifier:
    def __init__(self, names: Names) -> None:
        self._names = names

    def phase(self, stack: Sequence[Frame]) -> str:
        """Of what is on the processor; the innermost frame comes first."""
        called = _SYSCALLS.get(system_call(stack))
        if called is not None:
            return called
        for frame in stack:
            found = "" if frame.in_kernel else self._user(frame)
            if found:
                return found
        return OTHER

    def wait(self, stack: Sequence[Frame], preempted: bool) -> str:
        """Of what is not on the processor: to wait for clients is another thing than to ask."""
        if preempted:
            return PREEMPTED
        phase = self.phase(stack)
        if phase == LOOP:
            return IDLE
        return DISK if phase == WRITE else phase

    def kind(self, leaf: Frame) -> Kind:
        if leaf.in_kernel:
            return "kernel"
        return "compiled" if self._names.function(leaf.symbol) else "runtime"

    def _user(self, frame: Frame) -> str:
        function = self._names.function(frame.symbol)
        if function:
            return phase_of_function(function)
        for library, phase in _LIBRARIES.items():
            if f"/{library}/" in frame.file or f"/_{library}" in frame.file:
                return phase
        return ""


def system_call(stack: Sequence[Frame]) -> str:
    """The one that the kernel is in; "" if it is in none."""
    for inner, frame in pairwise(stack):
        if frame.in_kernel and frame.symbol == _DISPATCH:
            entry = _ENTRIES.match(inner.symbol)
            return entry[1] if entry is not None else inner.symbol
    return ""


def named() -> list[str]:
    """The modules and functions that the tables have."""
    return [*_MODULES, *_FUNCTIONS]


def phase_of_function(function: str) -> str:
    phase = _FUNCTIONS.get(function)
    if phase is not None:
        return phase
    name = function
    while name:
        if name in _MODULES:
            return _MODULES[name]
        name = name.rpartition(".")[0]
    return _PACKAGES.get(function.partition(".")[0], OTHER)
