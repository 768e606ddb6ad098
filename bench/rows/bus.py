"""The bus: a burst to three subscribers, the way of one event, a request and its reply, and what sessions leave behind.

Beside it, in the same process and taking turns: one asyncio.Queue, pyee, and bubus and autogen-core where installed.
"""

import asyncio
import dataclasses
import gc
import importlib
import importlib.util
import logging
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic

from bench.ending import rungs
from bench.line import Ceiling, Line, lines, times, us
from bench.rows.scope import LOOPS, Supervised
from bench.safety import safely
from bench.sampling import Contender, Samples, take_turns
from quell.events import Event, MemoryStored, MessageUser, ToolEnded, ToolRequested, decode, encode
from quell.kernel.bus import Bus

BURST = 5000
SUBSCRIBERS = 3
TRIPS = 300
SESSIONS = 10_000
BURST_TARGET = Ceiling(2)
LATENCY, REQUEST = 12e-6, 15e-6
KEPT = 1.0
"""Bytes per session: the noise of a garbage collector over all of them."""
SIZE = 660
QUEUE = "asyncio.Queue"
BREATH = 10
"""Events after which pyee's tasks may run: it is fastest so, and gets slower the more of them wait."""
EVENT = MessageUser(seq=1, session="s", text="x")
TRIP = MemoryStored(seq=2, session="s", text="x")


def measure(quick: bool) -> list[Line]:
    rounds = 15 if quick else 60
    found = [line for loop in LOOPS for line in safely(deliveries, loop, rounds)]
    return lines([*found, *safely(kept, SESSIONS), *safely(codecs, rounds)])


# -- contenders: each gives the seconds for one event


@dataclasses.dataclass
class Message:
    """What autogen-core is given to publish."""

    text: str


class Last:
    """Known when the last of so many calls has come."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.came: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def call(self) -> None:
        self._left -= 1
        if not self._left:
            self.came.set_result(time.perf_counter())


async def queue_burst() -> float:
    queue: asyncio.Queue[Event] = asyncio.Queue()

    async def consume() -> None:
        for _ in range(BURST):
            await queue.get()

    consumer = asyncio.ensure_future(consume())
    await asyncio.sleep(0)
    began = time.perf_counter()
    for _ in range(BURST):
        await queue.put(EVENT)
    await consumer
    return (time.perf_counter() - began) / BURST


class OurBus:
    def __init__(self, ours: Supervised) -> None:
        scope = ours.supervisor.scope("bus")
        self.last: Last
        self.bus = ours.run(self._make(scope))
        self.seq = 0

    async def _make(self, scope: Any) -> Bus:
        bus = Bus(scope, limit=BURST)
        for _ in range(SUBSCRIBERS):
            bus.subscribe(self._nothing, kinds=[EVENT.kind])
            bus.subscribe(self._handle, kinds=[TRIP.kind])
        bus.respond("tool.requested", self._respond)
        return bus

    async def _nothing(self, _: Event) -> None:
        """As the consumer of the queue does."""

    async def _handle(self, _: Event) -> None:
        self.last.call()

    async def _respond(self, event: Event) -> Event:
        return ToolEnded(request=event.seq, session=event.session)

    async def burst(self) -> float:
        began = time.perf_counter()
        for _ in range(BURST):
            self.bus.publish(EVENT)
        await self.bus.drained()
        return (time.perf_counter() - began) / BURST

    async def trip(self) -> float:
        self.last = Last(SUBSCRIBERS)
        began = time.perf_counter()
        self.bus.publish(TRIP)
        return await self.last.came - began

    async def request(self) -> float:
        self.seq += 1
        event = ToolRequested(seq=self.seq, session="s")
        began = time.perf_counter()
        await self.bus.request(event)
        return time.perf_counter() - began


class Pyee:
    """Its handlers are tasks: neither order nor limits are kept."""

    def __init__(self) -> None:
        from pyee.asyncio import AsyncIOEventEmitter

        self.last: Last
        self.emitter = AsyncIOEventEmitter()
        for _ in range(SUBSCRIBERS):
            self.emitter.add_listener("message", self._listener())

    def _listener(self) -> Callable[[Event], Awaitable[None]]:
        async def handle(_: Event) -> None:  # one object each: pyee keys listeners by it
            self.last.call()

        return handle

    async def burst(self) -> float:
        return await self._emit(BURST) / BURST

    async def trip(self) -> float:
        return await self._emit(1)

    async def _emit(self, count: int) -> float:
        self.last = Last(count * SUBSCRIBERS)
        began = time.perf_counter()
        for number in range(1, count + 1):
            self.emitter.emit("message", EVENT)
            if not number % BREATH:
                await asyncio.sleep(0)
        seconds = await self.last.came - began
        await asyncio.sleep(0)  # its tasks end
        return seconds


async def bubus_burst() -> float:
    library: Any = importlib.import_module("bubus")
    said = type("Said", (library.BaseEvent,), {"__module__": __name__})
    bus = library.EventBus(name="bench", max_history_size=FEW)

    def handler(number: int) -> Callable[[Any], Awaitable[None]]:
        async def handle(_: Any) -> None:
            pass

        handle.__name__ = handle.__qualname__ = f"handler_{number}"  # it warns of two that are named alike
        return handle

    for number in range(SUBSCRIBERS):
        bus.on(said, handler(number))
    began = time.perf_counter()
    for _ in range(FEW):
        bus.dispatch(said())
    await bus.wait_until_idle()
    seconds = time.perf_counter() - began
    await bus.stop()
    return seconds / FEW


async def autogen_burst() -> float:
    library: Any = importlib.import_module("autogen_core")

    async def handle(_self: Any, message: Any, ctx: Any) -> None:
        pass

    handle.__annotations__ |= {"message": Message, "ctx": library.MessageContext, "return": type(None)}
    agent: Any = type("Agent", (library.RoutedAgent,), {"handle": library.message_handler(handle)})
    runtime = library.SingleThreadedAgentRuntime()
    for number in range(SUBSCRIBERS):
        await agent.register(runtime, f"agent{number}", lambda: agent("one who listens"))
        await runtime.add_subscription(library.TypeSubscription(topic_type="said", agent_type=f"agent{number}"))
    runtime.start()
    began = time.perf_counter()
    for _ in range(FEW):
        await runtime.publish_message(Message("x"), library.TopicId("said", "s"))
    await runtime.stop_when_idle()
    return (time.perf_counter() - began) / FEW


FEW = 50
FEW_PEERS: dict[str, tuple[str, Callable[[], Awaitable[float]]]] = {
    "bubus": ("bubus", bubus_burst),
    "autogen-core": ("autogen_core", autogen_burst),
}


async def queue_trip() -> float:
    """One event through one queue, to a consumer that waits."""
    queue: asyncio.Queue[Event] = asyncio.Queue()
    last = Last(1)

    async def consume() -> None:
        await queue.get()
        last.call()

    consumer = asyncio.ensure_future(consume())
    await asyncio.sleep(0)
    began = time.perf_counter()
    queue.put_nowait(EVENT)
    seconds = await last.came - began
    await consumer
    return seconds


async def queue_request() -> float:
    """There and back through two queues."""
    there: asyncio.Queue[Event] = asyncio.Queue()
    back: asyncio.Queue[Event] = asyncio.Queue()

    async def respond() -> None:
        event = await there.get()
        back.put_nowait(ToolEnded(request=event.seq, session=event.session))

    responder = asyncio.ensure_future(respond())
    await asyncio.sleep(0)
    event = ToolRequested(seq=1, session="s")
    began = time.perf_counter()
    there.put_nowait(event)
    await back.get()
    seconds = time.perf_counter() - began
    await responder
    return seconds


def median_of(once: Callable[[], Awaitable[float]]) -> Callable[[], Awaitable[float]]:
    async def many() -> float:
        return statistics.median([await once() for _ in range(TRIPS)])

    return many


# -- lines


def deliveries(loop: str, rounds: int) -> list[Line]:
    logging.disable(logging.WARNING)  # of the peers, which have much to say
    with asyncio.Runner(loop_factory=LOOPS[loop]) as plain, Supervised(loop, rungs()[0]) as ours:
        bus, pyee = OurBus(ours), Pyee()

        def there(make: Callable[[], Awaitable[float]]) -> Contender:
            return lambda: plain.run(_awaited(make))

        def here(make: Callable[[], Awaitable[float]]) -> Contender:
            return lambda: ours.run(_awaited(make))

        contenders = {QUEUE: there(queue_burst), "ours": here(bus.burst), "pyee": there(pyee.burst)}
        contenders |= {name: there(burst) for name, (module, burst) in FEW_PEERS.items() if _installed(module)}
        bursts = take_turns(f"bus burst on {loop}", contenders, rounds, warm=2)
        trips = take_turns(
            f"bus trips on {loop}",
            {
                QUEUE: there(median_of(queue_trip)),
                "ours": here(median_of(bus.trip)),
                "pyee": there(median_of(pyee.trip)),
            },
            rounds,
            warm=2,
        )
        requests = take_turns(
            f"bus requests on {loop}",
            {QUEUE: there(median_of(queue_request)), "ours": here(median_of(bus.request))},
            rounds,
            warm=2,
        )
        ours.run(_close(bus.bus))
    burst = f"bus burst, {SUBSCRIBERS} subscribers, 1 session, per event, {loop}"
    trip = f"publish → last of {SUBSCRIBERS} handlers, {loop}"
    return [
        beside(burst, bursts, QUEUE, ratio=BURST_TARGET),
        beside(burst, bursts, "pyee"),
        Line(f"the same, pyee × {QUEUE}, {loop}", QUEUE, us(bursts.of(QUEUE)), "–", times(bursts.ratio("pyee", QUEUE))),
        beside(trip, trips, QUEUE, most=LATENCY),
        beside(trip, trips, "pyee"),
        beside(f"request → reply, bus alone, {loop}", requests, f"{QUEUE}", most=REQUEST),
        *(few(burst, bursts, name) if name in contenders else absent(burst, name) for name in FEW_PEERS),
    ]


async def _awaited(make: Callable[[], Awaitable[float]]) -> float:
    return await make()


async def _close(bus: Bus) -> None:
    bus.close()


def beside(work: str, samples: Samples, peer: str, ratio: Ceiling | None = None, most: float | None = None) -> Line:
    times_theirs, figure = samples.ratio("ours", peer), samples.of("ours")
    target, met = "–", None
    if ratio is not None:
        target, met = str(ratio), ratio.holds(times_theirs.p50)
    elif most is not None:
        target, met = f"≤ {most * 1e6:g} µs", figure.p50 <= most
    return Line(work, peer, us(samples.of(peer)), us(figure), times(times_theirs), target, met)


def few(work: str, samples: Samples, peer: str) -> Line:
    """A peer that is so slow that it gets fewer events."""
    return beside(f"{work}; the peer {FEW} events", samples, peer)


def absent(work: str, peer: str) -> Line:
    return Line(work, peer, "not installed", "–")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def kept(count: int) -> list[Line]:
    """Memory that is left when all sessions of one event each are over; the first thousand fill what is kept anyway."""
    with Supervised("asyncio", rungs()[0]) as ours:
        bytes_each = ours.run(_kept(ours, count))
    work = f"memory kept for each of {count} sessions of one event, {SUBSCRIBERS} subscribers"
    return [Line(work, "–", "–", f"{bytes_each:.2f} B", "–", "0 B", abs(bytes_each) < KEPT)]


async def _kept(ours: Supervised, count: int) -> float:
    bus = Bus(ours.supervisor.scope("bus"), limit=count)

    async def handle(_: Event) -> None:
        await asyncio.sleep(0)

    for _ in range(SUBSCRIBERS):
        bus.subscribe(handle)

    async def held_after(sessions: int) -> int:
        for number in range(sessions):
            bus.publish(MessageUser(session=f"session {number}"))
            if number % 100 == 0:
                await bus.drained()
        await bus.drained()
        while bus.sweeper.armed:  # noqa: ASYNC110  nobody tells when the last idle worker has gone
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = await held_after(1000)
    after = await held_after(count)
    tracemalloc.stop()
    bus.close()
    return (after - before) / count


class Model(pydantic.BaseModel):
    """The same event, as pydantic has it."""

    kind: str
    seq: int
    at: float
    source: str
    session: str
    turn: int
    epoch: int
    cause: int
    request: int
    result: str
    error: str = ""


def codecs(rounds: int) -> list[Line]:
    envelope = {"seq": 7, "at": 1.5e9, "source": "tool:shell", "session": "a" * 12, "turn": 3, "epoch": 4, "cause": 5}
    bare = len(encode(ToolEnded(request=6, **envelope)))  # type: ignore[arg-type]  # a dict of several types
    event = ToolEnded(request=6, result="x" * (SIZE - bare - len(',"result":""')), **envelope)  # type: ignore[arg-type]
    body = encode(event)
    assert len(body) == SIZE
    model = Model.model_validate_json(body)
    assert decode(body) == event

    def ours() -> None:
        decode(encode(event))

    def theirs() -> None:
        Model.model_validate_json(model.model_dump_json())

    samples = take_turns("codecs", {"pydantic": repeated(theirs), "ours": repeated(ours)}, rounds, warm=2)
    return [beside(f"event encode + decode ({SIZE} B), msgspec", samples, "pydantic")]


def repeated(once: Callable[[], None]) -> Contender:
    def many() -> float:
        began = time.perf_counter()
        for _ in range(TRIPS):
            once()
        return (time.perf_counter() - began) / TRIPS

    return many
