# SPDX-License-Identifier: Apache-2.0
"""Calls of the library: errors to exceptions, exceptions of callbacks to errors, Ctrl-C to a stop."""
import atexit
import contextlib
import os
import re
import signal
import threading
import time
import weakref
from ctypes import ArgumentError, byref, c_int32, c_void_p, string_at

from . import _c
from ._convert import argument, as_dict
from ._library import Error

# Exceptions that callbacks have raised, by the sentence that the library got for them.
_raised = {}
# .depth: how many callbacks this thread is inside of that a thread of a library's object may call; then the thread may be the object's own
# .function: one of the program runs in this thread, and not C
_inside = threading.local()
# of each stopping() that is open, the signals that have come, and what each does: those of an inner call are also those of the outer ones
_receivers, _receiving = [], threading.Lock()
_living, _ending = weakref.WeakSet(), weakref.WeakSet()  # owners that end before the interpreter does; what is held of those that were closed
_busy = {}  # of each call that runs: its owner, and all that it holds


@atexit.register
def end_all():
    """A daemon thread may be in a call: its training is stopped. What it uses after 5 seconds still is not destroyed."""
    for owner, _ in list(_busy.values()):
        with contextlib.suppress(Error):
            getattr(owner, 'request_stop', int)()
    until = time.monotonic() + 5
    while _busy and time.monotonic() < until:
        time.sleep(0.01)
    for owner in list(_living):
        owner.close()
    for held in list(_ending):
        if not any(held in used for _, used in list(_busy.values())):
            held.end()


@contextlib.contextmanager
def busy(owner, *held):
    """While a call of an owner runs."""
    key = object()
    _busy[key] = owner, held
    try:
        yield
    finally:
        _busy.pop(key, None)


os.register_at_fork(after_in_child=_busy.clear)  # a child has no threads of its parent


def call(function, *arguments):
    """Calls a function that returns a trm_status and takes a trm_error at the end. Returns the status, 0 or positive."""
    err = _c.trm_error()
    status = plain_call(function, *arguments, byref(err))
    if status < 0:
        raise_error(status, err)
    return status


def plain_call(function, *arguments):
    """Calls a function without an error record, or raises the TypeError of an argument that C cannot take, with the argument's name."""
    try:
        return function(*arguments)
    except ArgumentError as error:
        index, range_ = re.match(r"argument (\d+): (?:.*ValueError'?>?: (.*))?", str(error)).groups()
        index = int(index) - 1
        raise TypeError(f'{function.__name__[4:]}: the argument {function.names[index]} cannot be {arguments[index]!r}'
                        f'{f" ({range_})" if range_ else ""}') from None


def take(function, *arguments, run=call):
    """As call(), for a function whose last output is a pointer, which is returned: an object, or a text for text_of(); None is NULL."""
    out = c_void_p()
    run(function, *arguments, byref(out))
    return out.value


def pass_on(name, owner, *values):
    """Calls the function of the library that is a method of an object, and returns what it gives: a value, a text, a struct as a dictionary."""
    owner.check_child()
    function = getattr(_c, name)
    passed = [owner.handle] + [argument(function, index, value, None) for index, value in enumerate(values, 1)]
    if function.names[-2:] == ['out', 'err']:
        return text_of(take(function, *passed))
    if function.names[-1] == 'err':
        call(function, *passed)
        return None
    if function.names[-1] == 'out':
        return as_dict(filled(function.argtypes[-1]._type_, function, *passed))
    found = plain_call(function, *passed)
    return text_of(found) if function.restype is c_void_p else found


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


def guarded(kind, function, what, own_threads=False):
    """A C callback of the type `kind`, whose last argument is the trm_error. Exceptions become errors, for this process and the other ranks;
    None becomes TRM_OK. own_threads: threads of the library's object may call it."""
    def run(*arguments):
        _inside.depth = getattr(_inside, 'depth', 0) + own_threads
        try:
            return interruptible(function, *arguments[:-1]) or 0
        except BaseException as error:  # nothing may pass through C
            sentence, err = sentence_of(f'{what} raised', error), arguments[-1]
            while len(_raised) > 64:  # errors that the library kept to itself
                _raised.pop(next(iter(_raised)), None)
            _raised[sentence] = error
            if err:
                err[0].status, err[0].rank, err[0].message = _c.TRM_INVALID, -1, sentence.encode()
            return _c.TRM_CANCELLED if isinstance(error, KeyboardInterrupt) else _c.TRM_INVALID
        finally:
            _inside.depth -= own_threads
    return kind(run)


def interruptible(function, *arguments):
    """Calls a function of the program from a callback: Ctrl-C may raise KeyboardInterrupt in it."""
    before, _inside.function = getattr(_inside, 'function', False), True
    try:
        return function(*arguments)
    finally:
        _inside.function = before


@contextlib.contextmanager
def deferring():
    """For a call in which C may call Python: Ctrl-C raises KeyboardInterrupt in the program's functions, and else when the call has ended.
    On the way from C into a function, and back, Python would lose the exception, and C would get no result."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came, before, _inside.function = [], getattr(_inside, 'function', False), False

    def defer(number, frame):
        if _inside.function:
            handler(number, frame)
        else:
            came.append(number)
    signal.signal(signal.SIGINT, defer)
    try:
        yield
    except Error:
        if came and handler is not signal.default_int_handler:  # it gets its signal; Ctrl-C as such is this Error, with a KeyboardInterrupt
            handler(signal.SIGINT, None)
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
        _inside.function = before
    if came:
        handler(signal.SIGINT, None)


class Held:
    """What arrays over an owner's memory, and calls that use the owner, hold: the library's object is destroyed when the owner is closed and
    nothing holds this any more."""

    destroy = None  # set when the owner is closed

    def end(self):
        destroy, self.destroy = self.destroy, None
        if destroy is not None and getattr(_inside, 'depth', 0):  # this may be a thread of the object, which would wait for itself
            with contextlib.suppress(RuntimeError):  # no thread begins while the interpreter ends
                threading.Thread(target=destroy).start()
        elif destroy is not None:
            destroy()

    __del__ = end


class Single:
    """An object that has a handle of the library: a copy, also one in a file or another process, would free it a second time."""

    def __reduce_ex__(self, protocol):
        raise TypeError(f'{type(self).__name__}: it cannot be copied or pickled; make another one')

    def check_child(self):
        """Raises Error in a forked child that cannot use the object."""


class Owner(Single):
    """An object of the library with threads or ranks. A forked child has neither: it does not destroy what its parent made, which would
    wait for those threads for ever, and `refuse_child` ends calls that need them. After close() the handle raises Error.
    Arrays over the object's memory stay valid then: `held` is what they hold.
    """

    _handle, process, closed = None, None, False  # closed: True, or the reason
    free = None  # the name of the library's function that destroys the object

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

    def ends_first(self):
        """The object ends before the interpreter does: its threads call Python, or other ranks wait for it."""
        _living.add(self)

    def destroy(self, function=None):
        """Lets the library destroy the object when nothing is held of it any more. function: in place of `free`."""
        handle, self._handle, self.closed = self._handle, None, True
        function, held = function or getattr(_c, self.free), self.__dict__.pop('_held', None) or Held()
        if handle and not self.in_child():
            held.destroy = lambda: self.in_child() or function(handle)
            if self in _living:
                _ending.add(held)

    def close(self):
        """Ends the object; its memory is freed when the last array over it is gone."""
        self.destroy()

    def __del__(self):
        self.close()


class Freed(Single):
    """An object of the library without threads or ranks: it is freed with the last reference."""

    handle, free = None, None  # free: the name of the library's function

    def __del__(self):
        if self.handle:
            getattr(_c, self.free)(self.handle)


def text_of(pointer, count=-1):
    """The text that a function gave to its caller, of `count` bytes, or to its end; frees it."""
    if not pointer:
        raise Error('out of memory', _c.TRM_NOMEM)
    try:
        return string_at(pointer, count).decode('utf-8', 'replace')
    finally:
        _c.trm_free(pointer)


@contextlib.contextmanager
def stopping(stop, leave=None):
    """While this context is open, Ctrl-C calls `stop` at once: the C call ends at its next step, saves, and returns. SIGTERM calls
    `leave`, if there is one and the program has no handler of its own.

    Python's own handler runs only when the C call has returned; a thread that reads the wakeup pipe calls `stop` before.
    """
    actions, received = {}, set()
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) not in (None, signal.SIG_IGN, signal.SIG_DFL):
            actions[signal.SIGINT] = stop
        if leave is not None and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            actions[signal.SIGTERM] = leave
            signal.signal(signal.SIGTERM, lambda number, frame: None)
    if not actions:
        yield
        return
    read_end, write_end = os.pipe()
    _receivers.append((received, actions))

    def watch():
        number = ord(os.read(read_end, 1))
        while number:
            with _receiving:  # a call that has ended is not stopped: the request would be for the next one
                open_calls = [each for each in _receivers if number in each[1]]
                for seen, _ in open_calls:
                    seen.add(number)
                if open_calls:
                    open_calls[-1][1][number]()
            number = ord(os.read(read_end, 1))
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, name='trireme-interrupt', daemon=True)
    thread.start()
    try:
        yield
    except Error as error:
        if error.code == _c.TRM_CANCELLED and signal.SIGINT in received:
            raise KeyboardInterrupt(error.message) from None
        if error.code == _c.TRM_CANCELLED and signal.SIGTERM in received:  # too few ranks would be left: as any process that SIGTERM ends
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.set_wakeup_fd(before)
        with _receiving:
            _receivers.pop()
        os.write(write_end, b'\0')
        thread.join()
        os.close(read_end)
        os.close(write_end)
        if signal.SIGTERM in actions:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def stoppable():
    """As stopping(), for a call whose options have a place for the request to stop: gives that place."""
    place = c_int32()
    with stopping(lambda: setattr(place, 'value', 1)):
        yield place
