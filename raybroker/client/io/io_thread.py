"""The thread that does a process's broker IO: one event loop for all connections, started when first needed.

User threads hand work over with :meth:`IoThread.post` and wait for futures with :meth:`IoThread.done`.  A thread that
waits while nobody serves the sockets does it itself for a moment (leader and followers, see ``turns``); otherwise the
IO thread does, in the event loop.  Whoever serves is the only one who does, so that what runs "on the IO loop" never
runs beside itself.

The loop stands still while a thread leads, and while nobody serves.  It is not left so with anything to do:

    the IO thread steps aside   only when nothing is posted, scheduled, unsent or timed to come soon
    a leader runs               what it schedules itself, as the answer to an awaited request does: steps of tasks
    a leader leaves at once     when something needs the loop itself: a connection to be made, the rest of a write
    another thread schedules    the IO thread is woken, or the leader is told to leave
    a thread waits              it leads or follows, and whoever leaves wakes the IO thread for those who follow

A forked child has a copy of its parent's connections, but not the thread that serves them, and locks as somebody held
them: every call there raises IllegalStateError.  When the interpreter ends, the loop ends before what its tasks use.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Final, Generic, Protocol, TypeVar

from raybroker.client.io.held_signals import HeldSignals
from raybroker.client.io.lone_waiter import LoneWaiter
from raybroker.client.io.turns import LEAD_NS, NOBODY_NS, TurnOwner, Turns
from raybroker.model.errors import BrokerError, IllegalStateError
from raybroker.system.clock import SystemClock
from raybroker.transport.direct import SUPPORTED as DIRECT
from raybroker.transport.direct import DirectSockets
from raybroker.transport.loops import PausableLoop, call_running, running_loop, set_running_loop

T = TypeVar("T")
Unwanted = Callable[[T], Coroutine[Any, Any, None]]
"""Takes a result that nobody gets any more."""
EXIT_S: Final = 2.0
"""How long the tasks of the loop may take to end when the interpreter does."""
ASIDE_S: Final = 0.01
"""How long a thread waits at most for the IO thread to step aside for it."""
ENDED: Final = "the process is ending: its connections are closed"

log = logging.getLogger("raybroker.client")
_now_ns: Final = SystemClock.monotonic_ns
_main: Final = threading.main_thread().ident
"""Handlers of signals run in this thread; the thread that forked is that of the child."""


class Inherited(Protocol):
    """A connection: it belongs to the IO thread of a process, and is of no use in a child of it."""

    @property
    def closed(self) -> bool: ...

    def disown(self) -> None:
        """It is of no use any more: refuse every call, without waiting for a lock."""
        ...

    async def close(self) -> None:
        """End it, on the loop."""
        ...


class IoThread:
    """An event loop in a daemon thread. :meth:`shared` is the one of this process."""

    _shared: IoThread | None = None
    _guard = threading.Lock()

    def __init__(self, name: str = "raybroker-io") -> None:
        self._still = PausableLoop(self._need_loop)
        self._still.set_exception_handler(_on_loop_error)
        self._set_up(self._still)
        self._wake = threading.Lock()
        self._wake.acquire()
        self._woken = False
        self._stood_aside = threading.Lock()
        self._stood_aside.acquire()
        self._over = self._stopping = False
        atexit.register(self._end_at_exit)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _set_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """What it has whoever runs the loop."""
        self.loop = loop
        self.unusable = ""
        """Why nothing can be asked of it any more."""
        self.users: weakref.WeakSet[Inherited] = weakref.WeakSet()
        """The connections that it serves."""
        self.sockets: DirectSockets | None = None
        """Sockets that a waiting thread may serve, once some connection wants that."""
        self.residents = 0
        """Those who need the loop for whatever they do (:meth:`count_resident`): with any, no thread leads."""
        self._needing: weakref.WeakSet[Inherited] = weakref.WeakSet()
        """Connections among them."""
        self._turns = Turns()
        self._lock = threading.RLock()
        """Guards ``_turns``, ``_rung`` and ``_woken``; whoever holds it takes no other one. A handler of a signal may
        make a call while its thread holds it."""
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._rung = False
        """Whoever serves is told already that something was posted."""
        self._pid = os.getpid()
        _all.add(self)

    @classmethod
    def shared(cls) -> IoThread:
        """The process's IO thread; a forked child gets one of its own."""
        with cls._guard:
            if cls._shared is None or cls._shared.unusable:
                cls._shared = cls()
            return cls._shared

    def submit(self, work: Coroutine[Any, Any, T], unwanted: Unwanted[T] | None = None) -> Future[T]:
        """Start a coroutine on the loop, from any thread. ``unwanted``: what to do with a result that comes although
        the future was cancelled."""
        self._require_usable(work)
        future: Future[T] = Future()
        self.post(self._start_work, work, future, unwanted)
        return future

    def _start_work(self, work: Coroutine[Any, Any, T], future: Future[T], unwanted: Unwanted[T] | None) -> None:
        task = self.loop.create_task(work)

        def over(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.cancel()
            error = None if task.cancelled() else task.exception()
            if not future.set_running_or_notify_cancel():
                if unwanted is not None:
                    self._let_go(task, unwanted)
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def given_up(future: Future[T]) -> None:
            if future.cancelled() and not self.unusable:
                self.post(task.cancel)

        task.add_done_callback(over)
        future.add_done_callback(given_up)

    def run(self, work: Coroutine[Any, Any, T], unwanted: Unwanted[T] | None = None) -> T:
        """Run a coroutine on the loop and wait for it; raises IllegalStateError on the loop itself.

        ``unwanted``: what to do with a result that nobody gets, because a handler of a signal has raised.
        """
        self._require_usable(work)
        if threading.current_thread() is self._thread or self._turns.leader == threading.get_ident():
            work.close()
            raise IllegalStateError("a blocking call on the IO thread would wait for itself; make it in another thread")
        waiter: Waiter[T] = Waiter(self.loop)
        try:
            self.expect()
            self.post(waiter.start_work, work)
            if self.served is not None and not self.lead(waiter.over):
                try:
                    self.follow()
                    waiter.wait()
                finally:
                    self.followed()
            return waiter.result()
        except BaseException:
            if unwanted is not None and not self.unusable:
                self.post(waiter.give_up, self._let_go, unwanted)
            raise

    def _let_go(self, task: asyncio.Task[T], unwanted: Unwanted[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            self.loop.create_task(unwanted(task.result()))

    def done(self, future: Future[Any], timeout_s: float | None = None) -> bool:
        """Wait for a future, whatever becomes of it; False when the time is over."""
        try:
            if self.served is None:
                if isinstance(future, LoneWaiter):
                    future.wait(timeout_s)
                else:
                    Future.exception(future, timeout_s)
                return True
            since_ns = _now_ns()
            if self.lead(future.done, timeout_s):
                return True
            try:
                self.follow()
                left_s = None if timeout_s is None else max(timeout_s - (_now_ns() - since_ns) / 1e9, 0)
                if isinstance(future, LoneWaiter):
                    future.wait(left_s)
                else:
                    Future.exception(future, left_s)
            finally:
                self.followed()
        except CancelledError:
            pass
        except TimeoutError:
            return False
        return True

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have this called on the loop, after what was posted before, from any thread; what it raises is logged."""
        if self.unusable:
            raise IllegalStateError(self.unusable)
        # First appended, then looked whether to ring: whoever serves takes the bell back before it takes what is there.
        self._posted.append((call, args))
        if not self._rung:
            self._ring()

    def call_lazily(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Have this called, on the loop, after ``delay_s``, or somewhat later while the loop stands still."""
        self._still.call_lazily(delay_s, call, *args)

    def expect(self) -> None:
        """This thread is about to post something and to wait for what comes of it: nobody has to be woken up for it."""
        if self._turns.owner is TurnOwner.NOBODY and self.served is not None:
            self._turns.expect(threading.get_ident())

    def _ring(self) -> None:
        """Tell whoever serves that something was posted. What is noted as told has been: a signal may end this."""
        me = threading.get_ident()
        with self._lock:
            owner = self._turns.owner
            if owner is TurnOwner.NOBODY:
                if self._turns.posted(me):
                    self._wake_up()
            elif self._rung or self._turns.leader == me:
                return
            elif owner is TurnOwner.LEADER:
                assert self.sockets is not None
                self.sockets.ring()
                self._rung = True
            elif me == self._thread.ident:
                self.loop.call_soon(self._call_posted)
                self._rung = True
            else:
                call_running(self._still, self._call_posted)
                self._rung = True

    def together(self, work: Callable[[], T]) -> T:
        """Do ``work``, on the loop, then call at once what it has posted, which else waits for the loop's next turn."""
        with self._lock:
            rung, self._rung = self._rung, True
        try:
            return work()
        finally:
            if not rung:
                self._call_posted()

    def _call_posted(self) -> None:
        """Call, on the loop, what has been posted so far."""
        posted = self._posted
        with self._lock:
            self._rung = False
        # What these post themselves waits for the next turn: whoever posts without end keeps nobody from the sockets.
        for _ in range(len(posted)):
            call, args = posted.popleft()
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001 - the others are called all the same
                log_failure(f"{getattr(call, '__qualname__', call)} has failed", error)
        if posted and not self._rung:
            self._ring()

    # ---- whose turn it is ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._over:
            self.loop.run_forever()
            self._stopping = False
            aside = self._step_aside()
            if self._stood_aside.locked():
                self._stood_aside.release()
            while aside:
                needed = self._wake.acquire(timeout=NOBODY_NS / 1e9)
                aside = not self._serve_if_idle(needed)

    def _step_aside(self) -> bool:
        """The loop has stopped: True when it may stand still."""
        loop, sockets = self._still, self.sockets
        if sockets is None:
            return False
        with self._lock:
            self._rung = False  # From now on whoever posts has to tell; what was posted before is seen here.
            busy = loop.noted or bool(self._posted) or sockets.unsent or loop.is_timed
            if self._over or busy or not self._turns.step_aside(_now_ns()):
                loop.take_no_notes()
                loop.call_soon(self._call_posted)
                return False
            return True

    def _stop_loop(self) -> None:
        """Stop the loop, on the loop, which was asked to stop: what is scheduled from now on may be left when it has. A
        second stop would end it the next time, with what nobody has noted."""
        if not self._stopping:
            self._stopping = True
            self._still.take_notes()
            self.loop.stop()

    def _serve_if_idle(self, needed: bool) -> bool:
        """The IO thread looks whether it is to serve."""
        with self._lock:
            if needed:
                self._woken = False
            if not self._turns.serve_if_idle(needed=needed):
                return False
            self._still.take_no_notes()
            self.loop.call_soon(self._call_posted)
            self._rung = True
            if self.sockets is not None:
                self.sockets.needs_loop = False
        return True

    def _wake_up(self) -> None:
        """Wake the IO thread, which is needed, with the lock held."""
        if not self._woken:
            with contextlib.suppress(RuntimeError):  # It is awake: a handler of a signal was faster.
                self._wake.release()
            self._woken = True

    def _need_loop(self) -> None:
        """Something was scheduled in the event loop: it has to run."""
        with self._lock:
            if self._turns.owner is TurnOwner.NOBODY:
                self._wake_up()
            elif self._turns.owner is TurnOwner.LEADER and self.sockets is not None:
                self.sockets.needs_loop = True
                self.sockets.ring()

    def count_resident(self, residents: int) -> None:
        """Note that somebody comes (1) or goes (-1) who needs the event loop for whatever he does: a broker or a
        listener."""
        with self._lock:
            self.residents += residents

    @property
    def served(self) -> IoThread | None:
        """Itself, where threads that wait may serve the sockets."""
        return self if self.sockets is not None and not self.residents else None

    def serve_directly(self) -> DirectSockets | None:
        """Return where a connection puts sockets that threads which wait may serve; None where the system does not have
        it."""
        with self._lock:
            if DIRECT and self.sockets is None:
                self.sockets = DirectSockets()
            return self.sockets

    @property
    def _may_be_led(self) -> bool:
        """Some thread may serve the sockets; without any the IO thread serves alone."""
        return self.sockets is not None and len(self.sockets.links) > 0 and not self.residents

    def follow(self) -> None:
        """This thread is going to wait, and serves nothing meanwhile; to be followed by :meth:`followed`."""
        with self._lock:
            if self._turns.follow(threading.get_ident()):
                self._wake_up()

    def followed(self) -> None:
        """This thread waits no more; also when a signal has kept it from :meth:`follow`."""
        with self._lock:
            aside = self._turns.followed(threading.get_ident(), _now_ns())
        if aside and self._may_be_led and not self.unusable:
            call_running(self._still, self._stop_loop)
            self._stood_aside.acquire(timeout=ASIDE_S)  # Otherwise the next call would come before it has.

    def lead(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Serve the sockets in this thread until ``done``; False when it has to be waited for otherwise: somebody else
        serves them, nothing came for LEAD_NS, or what came needs the event loop."""
        turns, sockets = self._turns, self.sockets
        if turns.owner is not TurnOwner.NOBODY or not self._may_be_led or sockets is None or self.unusable:
            return False
        me, now_ns = threading.get_ident(), _now_ns()
        until_ns = now_ns + (LEAD_NS if timeout_s is None else min(LEAD_NS, round(timeout_s * 1e9)))
        signals = HeldSignals(self._interrupted) if me == _main else None
        if signals is not None:
            signals.hold()
        before = running_loop()
        try:
            with self._lock:
                if not turns.lead(me, now_ns):
                    return False
                sockets.active = True
                self._still.leader = me
            set_running_loop(self.loop)
            return self._serve(sockets, done, me, until_ns, signals)
        finally:
            if signals is not None:
                signals.interruptible = False
            set_running_loop(before)
            self._leave()
            if signals is not None:
                signals.release()

    def _serve(
        self, sockets: DirectSockets, done: Callable[[], bool], me: int, until_ns: int, signals: HeldSignals | None
    ) -> bool:
        loop = self._still
        while True:
            self._call_posted()
            if loop.ready:
                loop.run_ready()
            if done():
                return True
            left_ns = until_ns - _now_ns()
            if sockets.needs_loop or loop.noted or left_ns <= 0:
                return False
            if signals is not None:
                signals.interruptible = True
            ready = sockets.wait(0 if self._posted or loop.ready else left_ns / 1e9)
            if signals is not None:
                signals.interruptible = False
            if self._turns.leader != me:  # A handler of a signal ran meanwhile.
                return False
            for number, _ in ready:
                try:
                    sockets.read(number)
                except Exception as error:  # noqa: BLE001 - it is not the fault of this thread, and the link is closed
                    log_failure("what came could not be handled", error)

    def _interrupted(self) -> None:
        """A signal arrived while this thread waits at the sockets: its handler may make calls of its own."""
        set_running_loop(None)
        self._leave()

    def _leave(self) -> None:
        """This thread leads no more."""
        sockets = self.sockets
        with self._lock:
            if sockets is None or not sockets.active or self._turns.leader != threading.get_ident():
                return
            sockets.active = False
            self._still.leave()
            self._rung = False  # As in _step_aside.
            needs_loop = sockets.needs_loop or self._still.noted or bool(self._posted)
            if self._turns.left(_now_ns(), needs_loop=needs_loop):
                self._wake_up()

    def require_usable(self) -> None:
        """Raises IllegalStateError in a forked child, and when the process is ending."""
        if self.unusable:
            raise IllegalStateError(self.unusable)

    def _require_usable(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.unusable:
            work.close()
            raise IllegalStateError(self.unusable)

    # ---- how it ends -----------------------------------------------------------------------------------------------

    def join(self, user: Inherited, *, resident: bool = False) -> None:
        """Serve a new connection, and end, with the interpreter, before everything that was loaded until now.

        ``resident``: until it has left it counts among those who need the event loop, also if it has joined before.
        """
        self.users.add(user)
        if resident and user not in self._needing:
            self._needing.add(user)
            self.count_resident(1)
        atexit.unregister(self._end_at_exit)
        atexit.register(self._end_at_exit)

    async def left(self, leaving: Inherited) -> None:
        """A connection that has joined was closed; on the loop."""
        if leaving in self._needing:
            self._needing.discard(leaving)
            self.count_resident(-1)

    def _end_at_exit(self) -> None:
        """The interpreter ends: cancel every task, and then the loop."""
        if self.unusable or self._pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            ending = self.submit(self._cancel_all())
            # Only now: the task that cancels the others would be refused as well.
            self.unusable = ENDED
            ending.result(EXIT_S)
        with contextlib.suppress(Exception):
            self._over = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(EXIT_S)
            if not self._thread.is_alive():
                self.loop.close()  # Its descriptors stay open otherwise.
                atexit.unregister(self._end_at_exit)

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def disown(self) -> None:
        """This is a forked child: the thread and the loop stayed behind."""
        self.unusable = (
            f"this connection belongs to process {self._pid}, and this is its child {os.getpid()}: a connection does"
            " not survive a fork; connect again in the child"
        )
        users = list(self.users)
        for user in users:
            user.disown()
        _left_behind.append((self, users))


_all: weakref.WeakSet[IoThread] = weakref.WeakSet()
_left_behind: list[Any] = []
"""Loops and connections of a parent: if they were finalized here, that would end what the parent's loop waits for."""


def _forked() -> None:
    IoThread._guard = threading.Lock()
    IoThread._shared = None
    for thread in list(_all):
        thread.disown()


os.register_at_fork(after_in_child=_forked)


def end_thread(io: IoThread) -> None:
    """End one for good, from another thread. Connections that it serves are of no use any more."""
    io._end_at_exit()


def ending() -> bool:
    """True once the interpreter has begun to end."""
    return not threading.main_thread().is_alive()


def log_failure(what: str, error: BaseException) -> None:
    """Log a failure that no caller waits for: answers of brokers as INFO, faults of this package as errors."""
    if isinstance(error, BrokerError):
        log.info("%s: %s", what, error)
    elif not ending():
        log.error("%s: %r", what, error, exc_info=error)


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio would print: an error that no code of ours has seen."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_failure(str(context.get("message")), error)
    elif not ending():
        log.error("%s", context.get("message"))


class Waiter(Generic[T]):
    """One thread that waits for one coroutine, without what only a future that others may look at or cancel needs."""

    __slots__ = ("_loop", "_task", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = threading.Lock()
        self._turn.acquire()
        self._task: asyncio.Task[T] | None = None

    def start_work(self, work: Coroutine[Any, Any, T]) -> None:
        """Start the work, on the loop."""
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        task.cancelled() or task.exception()  # Seen, even if the thread has been interrupted and waits no more.
        self._turn.release()

    def give_up(self, let_go: Callable[[asyncio.Task[T], Unwanted[T]], None], unwanted: Unwanted[T]) -> None:
        """Give up, on the loop: the thread was interrupted, or the coroutine has failed; ``let_go`` is called at its
        end."""
        if self._task is not None:
            self._task.add_done_callback(lambda task: let_go(task, unwanted))

    def over(self) -> bool:
        """It has ended: :meth:`result` does not wait."""
        return not self._turn.locked()

    def wait(self) -> None:
        with self._turn:
            pass

    def result(self) -> T:
        """Wait; raises what the coroutine raised."""
        self._turn.acquire()
        assert self._task is not None
        return self._task.result()


def call_or_refuse(waiting: Future[Any] | None, call: Callable[..., object], *args: Any) -> None:
    """Make a call; its error goes to the future, so that no caller waits for what has failed."""
    try:
        call(*args)
    except Exception as error:
        if waiting is None:
            raise
        known = isinstance(error, BrokerError)
        refuse(waiting, error if known else BrokerError(f"{getattr(call, '__name__', call)} has failed: {error!r}"))
        if not known:
            raise


def fulfil(future: Future[T], result: T) -> None:
    """Give a future its result, unless whoever waited for it has given up."""
    try:
        future.set_result(result)
    except InvalidStateError:
        pass


def refuse(future: Future[Any], error: BaseException) -> None:
    """Give a future an error, unless whoever waited for it has given up."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass
