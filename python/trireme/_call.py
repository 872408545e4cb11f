# SPDX-License-Identifier: Apache-2.0
"""Calls of the library: errors to exceptions, exceptions of callbacks to errors, Ctrl-C to a stop."""
import atexit
import contextlib
import os
import re
import signal
import threading
import weakref
from ctypes import ArgumentError, byref, c_void_p, string_at

from . import _c
from ._library import Error

# Exceptions that callbacks have raised, by the sentence that the library got for them.
_raised = {}
_inside = threading.local()  # depth: callbacks that this thread runs
_ending = weakref.WeakSet()  # Held objects of closed owners whose threads call Python: they end before the interpreter does
atexit.register(lambda: [held.end() for held in list(_ending)])


def call(function, *arguments):
    """Calls a function that returns a trm_status and takes a trm_error at the end. Returns the status, 0 or positive."""
    err = _c.trm_error()
    try:
        status = function(*arguments, byref(err))
    except ArgumentError as error:
        raise wrong_argument(function, arguments, error) from None
    if status < 0:
        raise_error(status, err)
    return status


def plain_call(function, *arguments):
    """Calls a function without an error record, or raises the TypeError of an argument that C cannot take."""
    try:
        return function(*arguments)
    except ArgumentError as error:
        raise wrong_argument(function, arguments, error) from None


def wrong_argument(function, arguments, error):
    """The TypeError of a call whose argument C cannot take, with the argument's name."""
    index, range_ = re.match(r"argument (\d+): (?:.*ValueError'?>?: (.*))?", str(error)).groups()
    index = int(index) - 1
    return TypeError(f'{function.__name__[4:]}: the argument {function.names[index]} cannot be {arguments[index]!r}' + (f' ({range_})' if range_ else ''))


def take(function, *arguments, run=call):
    """As call(), for a function whose last output is a pointer, which is returned: an object, or a text for text_of(); None is NULL."""
    out = c_void_p()
    run(function, *arguments, byref(out))
    return out.value


def filled(struct, function, *arguments):
    """The struct that a function without an error fills in."""
    made = struct()
    function(*arguments, byref(made))
    return made


def raise_error(status, err):
    """Raises the exception of a callback if the error is one, else an Error."""
    message = err.message.decode('utf-8', 'replace').replace('is NULL; pass a valid pointer', 'is None')
    for sentence in list(_raised):
        if sentence[:80] in message:
            raise _raised.pop(sentence)
    raise Error(message or _c.trm_status_text(status).decode(), status, err.rank, err.file.decode('utf-8', 'replace'), err.line)


def sentence_of(begin, error):
    """One line of at most 180 bytes: `begin`, and the exception. It never raises: an exception may fail to say its words."""
    try:
        words = str(error)
    except BaseException:
        words = ''
    line = f'{begin} {type(error).__name__}{": " + words if words else ""}'.replace('\n', ' ').replace('\0', ' ')
    return line.encode('utf-8', 'replace')[:180].decode('utf-8', 'ignore')


def keep_exception(error, err, what):
    """Writes an exception of a callback to the error record, for this process and the other ranks. Returns the status."""
    sentence = sentence_of(f'{what} raised', error)
    while len(_raised) > 64:  # errors that the library kept to itself
        _raised.pop(next(iter(_raised)), None)
    _raised[sentence] = error
    if err:
        err[0].status = _c.TRM_INVALID
        err[0].rank = -1
        err[0].message = sentence.encode()
    return _c.TRM_CANCELLED if isinstance(error, KeyboardInterrupt) else _c.TRM_INVALID


def guarded(kind, function, what):
    """A C callback of the type `kind`, whose last argument is the trm_error. Exceptions become errors; None becomes TRM_OK."""
    def run(*arguments):
        _inside.depth = getattr(_inside, 'depth', 0) + 1
        try:
            return function(*arguments[:-1]) or 0
        except BaseException as error:  # nothing may pass through C
            return keep_exception(error, arguments[-1], what)
        finally:
            _inside.depth -= 1
    return kind(run)


class Held:
    """What arrays over an owner's memory, and calls that use the owner, hold: the library's object is destroyed when the owner is closed and
    nothing holds this any more."""

    destroy = None  # set when the owner is closed

    def end(self):
        destroy, self.destroy = self.destroy, None
        if destroy is None:
            return
        if getattr(_inside, 'depth', 0):  # this may be a thread of the object, which would wait for itself
            with contextlib.suppress(RuntimeError):  # no thread begins while the interpreter ends
                threading.Thread(target=destroy).start()
        else:
            destroy()

    __del__ = end


class Owner:
    """An object of the library with threads or ranks. A forked child has neither: it does not destroy what its parent made, which would
    wait for those threads for ever, and `refuse_child` ends calls that need them. After close() the handle raises Error.
    Arrays over the object's memory stay valid then: `held` is what they hold.
    """

    _handle, process, closed = None, None, False  # closed: True, or the reason

    @property
    def handle(self):
        """The library's object, for calls of trireme._c."""
        if self.closed:
            raise Error(f'{type(self).__name__}: {"it was closed" if self.closed is True else self.closed}; make another one')
        return self._handle

    @handle.setter
    def handle(self, value):
        self._handle, self.process = value, os.getpid()

    def in_child(self):
        """Whether this process was forked after the object was made."""
        return self.process not in (None, os.getpid())

    def refuse_child(self, what, needs):
        """Raises the Error of a call that a forked child cannot make."""
        way_out = 'let the parent call' if needs == 'ranks' else 'make another one in this process'
        raise Error(f'{what}: this process was forked after its parent had made the {type(self).__name__}, and has not its {needs}; '
                    f'{way_out}, or start the process by spawn')

    def held(self):
        """While a caller has this, the library's object stays, also after close()."""
        return self.__dict__.setdefault('_held', Held())

    def destroy(self, function, calls_python=False):
        """calls_python: threads of the object do."""
        handle, self._handle, self.closed = self._handle, None, True
        held = self.__dict__.pop('_held', None) or Held()
        if handle and not self.in_child():
            held.destroy = lambda: self.in_child() or function(handle)
            if calls_python:
                _ending.add(held)


class Freed:
    """An object of the library without threads or ranks: it is freed with the last reference."""

    handle, free = None, None  # free: the name of the library's function

    def __del__(self):
        if self.handle:
            getattr(_c, self.free)(self.handle)


def text_of(pointer):
    """The text that a function gave to its caller; frees it."""
    if not pointer:
        raise Error('out of memory', _c.TRM_NOMEM)
    try:
        return string_at(pointer).decode('utf-8', 'replace')
    finally:
        _c.trm_free(pointer)


class stopping:
    """While this context is open, Ctrl-C calls `stop` at once: the C call ends at its next step, saves, and returns. SIGTERM calls
    `leave`, if there is one and the program has no handler of its own.

    Python's own handler runs only when the C call has returned; a thread that reads the wakeup pipe calls `stop` before.
    """

    def __init__(self, stop, leave=None):
        self.stop, self.leave, self.thread, self.received = stop, leave, None, set()

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            return self
        self.actions = {}
        if signal.getsignal(signal.SIGINT) not in (None, signal.SIG_IGN, signal.SIG_DFL):
            self.actions[signal.SIGINT] = self.stop
        if self.leave is not None and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self.actions[signal.SIGTERM] = self.leave
            signal.signal(signal.SIGTERM, lambda number, frame: None)
        if not self.actions:
            return self
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)
        self.before = signal.set_wakeup_fd(self.write_end, warn_on_full_buffer=False)
        self.thread = threading.Thread(target=self.watch, name='trireme-interrupt', daemon=True)
        self.thread.start()
        return self

    def watch(self):
        while True:
            number = os.read(self.read_end, 1)
            if number in (b'', b'\0'):
                return
            if number[0] in self.actions:
                self.received.add(number[0])
                self.actions[number[0]]()

    def __exit__(self, kind, error, trace):
        if self.thread is None:
            return False
        signal.set_wakeup_fd(self.before)
        os.write(self.write_end, b'\0')
        self.thread.join()
        os.close(self.read_end)
        os.close(self.write_end)
        if signal.SIGTERM in self.actions:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if isinstance(error, Error) and error.code == _c.TRM_CANCELLED:
            if signal.SIGINT in self.received:
                raise KeyboardInterrupt(error.message) from None
            if signal.SIGTERM in self.received:  # too few ranks would be left: as any process that SIGTERM ends
                raise SystemExit(128 + signal.SIGTERM) from None
        return False
