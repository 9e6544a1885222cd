"""One Kafka client connection: reads requests from a slab, runs them concurrently, answers them in request order.

- The batches of a Produce request stay in the receive buffer, as views, until they are sealed (`serving/slabs.py`).
- The connection reads requests ahead and runs a bounded number at once, but answers them in order (Kafka protocol guide). Produce
  requests reach the write path in arrival order (I3): they are submitted inline, and queue behind a Produce request that must wait.
- Backpressure stops reading (`serving/pacing.py`). The socket is paused when `requests_in_flight_max` requests run, when the client has
  not taken `response_bytes_max` bytes of responses, and at a Produce request while the write path is over its byte budget.
- Three lanes run in parallel. Produce is one. Fetch requests run one at a time, so that a client that does not read holds one response
  in memory. All other requests run one at a time, as in Kafka, so that a later commit or leave cannot overtake a commit.
- When the client disconnects, its long polls and joins are cancelled; requests that change something run to completion. An administrative
  request that has not begun by then is dropped (decision 110), and so is a Produce request of a client whose quota is limited. A frame
  that violates the protocol closes only this connection.
- On a listener with SASL, a client that is not logged in may send only small requests of `sasl.LOGIN_APIS`, one after another. A login that
  has ended closes the connection at the next other request, after the answers to the requests before it, or at one that was held.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Mapping, Sequence
from functools import partial

from bearlake.errors import BearlakeError, Corrupt, Denied
from bearlake.protocols.kafka import apis, codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.dispatch import Served, disconnected
from bearlake.protocols.kafka.fetch_lane import FetchLane
from bearlake.protocols.kafka.framing import PRODUCE, may_be_large
from bearlake.protocols.kafka.handlers import api_versions, produce, produce_pipelined
from bearlake.protocols.kafka.lane import Lane
from bearlake.protocols.kafka.large_requests import LARGE_BYTES, WAITING_BYTES_MAX, LargeRequests, decoded, within
from bearlake.protocols.kafka.login import KafkaListenerLogin
from bearlake.protocols.kafka.rendered import Rendered
from bearlake.protocols.kafka.request_kinds import ADMINISTRATIVE, LOGIN, WAITING
from bearlake.protocols.kafka.sasl import FRAME_BYTES_MAX, LOGIN_APIS, SaslSession
from bearlake.protocols.kafka.slot import Place, Slot
from bearlake.protocols.kafka.throttling import Throttling
from bearlake.protocols.kafka.turn import TurnConnection
from bearlake.serving.pacing import UNREAD_BYTES_MIN, Register
from bearlake.serving.slabs import Slab
from bearlake.streams.client_turns import Turn
from bearlake.streams.principal import ANONYMOUS, at_host, with_client_id
from bearlake.telemetry.containment import fault
from bearlake.telemetry.watchdog import begin

log = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_API_AND_VERSION = struct.Struct(">hh")
QUIET_MS = 5_000
"""Time (ms) without a request after which a connection returns its receive buffer."""
_FETCH = int(ApiKey.FETCH)  # looked at for every answer
_WRITE_BYTES = 1 << 20  # largest write to the transport, so that a client that does not read is detected early


class Connection(TurnConnection):
    """Protocol object of one accepted socket."""

    def __init__(
        self,
        register: Register["Connection"],
        context: KafkaContext,
        apis: Mapping[int, Served],
        listener: str,
        login: KafkaListenerLogin | None = None,
    ) -> None:
        """`login`: how clients log in; None: they need not."""
        super().__init__(register, context, apis, listener)
        self._login = login
        self._refusal_s = login.refusal_s if login is not None else 0.0
        self._login_timer: asyncio.TimerHandle | None = None
        self._is_logging_in = False  # a request of the login runs, and the next request waits for it
        self._is_ending = False  # no more requests are read, and the connection closes after its last answer
        self._quotas = context.streams.quotas
        self._throttling = Throttling(self._quotas, self)
        self._caller = Caller(-1, ANONYMOUS, None, listener, "")
        self._fetches = FetchLane(self, self._throttling, lambda: self._is_write_paused)
        self._others = Lane(self, self._throttling, self._has_room)
        self._large = LargeRequests(self, context.large_requests)
        self._is_finishing = False
        self._waiting_bytes = 0  # of requests that wait, undecoded, behind the request that runs
        self._has_spoken = False  # whether the client has sent a request

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        address = self.peer.rpartition(":")[0]
        self.who = at_host(ANONYMOUS, address, self.listener)
        wait_s = self._throttling.connected(self.who.host)
        login = self._login
        if login is None or not self.is_open:
            return
        self.session = login.session(address, self._is_encrypted, self.listener)
        if self.session is not None:
            self._login_timer = self._loop.call_later(wait_s + login.login_s, self._close_unless_logged_in)
            return
        try:
            named = login.principal((transport.get_extra_info("peercert") or {}).get("subject"))
        except Denied as error:
            self.close(str(error), "refused_login")
            return
        if named is not None:
            self.who = at_host(named, address, self.listener)
            self._login_timer = login.at_end(named, self._end_login)

    def _close_unless_logged_in(self) -> None:
        if self.session is not None and self.session.principal is None:
            self.close("the client did not log in in time", "slow_login")

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(error)
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._fetches.close()
        self._large.closed()
        self._slots.clear()
        for work in disconnected(self.context, self.peer):
            self.start(work, is_cancelled_on_close=False)
        self._others.start_next()  # requests that were held

    def close_if_idle(self) -> None:
        """Close the connection if no request is in progress."""
        if not self._slots and self.produce_tail is None and self._high == self._low and self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Stop reading; close once only long polls remain. Call repeatedly until the connection is closed."""
        self._is_finishing = True
        self._others.drain()
        self._pace()
        is_busy = any(slot.chunks is not None or slot.api not in WAITING for slot in self._slots)
        if not is_busy and self.produce_tail is None and self._transport is not None:
            self._transport.close()

    def check(self, now: float) -> None:
        """Close the connection if the client stalls or is idle for `idle_ms`; free memory after `QUIET_MS` without a request."""
        self._close_if_stalled(now)
        idle_ms = (now - self._last_active) * 1000
        # The server does not read a connection that waits for something, and a large request that has begun may take `stall_ms`.
        is_silent = not self._has_spoken and not self._is_reading_paused and self._need <= LARGE_BYTES
        if is_silent and idle_ms > self.context.settings.first_request_ms:
            self.close("no request within the deadline", "silent")
        elif idle_ms > self.context.settings.idle_ms:
            self.close_if_idle()
        elif idle_ms > QUIET_MS:
            self.release_idle_memory()

    # -- receive -------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Take complete frames from the slab while the connection may run more requests."""
        self._take_frames() if self._quotas.usage is None else self._throttling.run(self._take_frames)

    def _take_frames(self) -> None:
        slab = self._slab
        assert slab is not None
        view, limits = slab.view, self.context.settings
        self._need = 0
        if self._must_wait():
            self._pace()
            return
        is_over_budget, session, first = self._budget.is_over_budget, self.session, self._low
        usage = self._quotas.usage
        if session is not None and not session.is_logged_in:
            usage = None
            self._set_lead(None)
        self._is_frugal = usage is not None and self._throttling.limits_produce(usage, self.who)
        if (lead := self._produce_lead) and usage is not None and self._throttling.limits_produce(usage, lead[0].who):
            lead = None  # it is of the last Produce request, whose client need not be `who`
            self._set_lead(None)
        try:
            if lead is not None and not is_over_budget and self.produce_tail is None:
                begin(self._apis[ApiKey.PRODUCE].what)
                room = limits.requests_in_flight_max - self._request_count
                self._low = produce_pipelined.take(self, lead, slab, first, self._high, room)
            while (
                self._high - self._low >= 4
                and self._request_count < limits.requests_in_flight_max
                and self._waiting_bytes + self._fetches.waiting_bytes < WAITING_BYTES_MAX
                and not self._is_logging_in
            ):
                (size,) = _SIZE.unpack_from(view, self._low)
                start, end = self._low + 4, self._low + 4 + size
                if session is not None and size > FRAME_BYTES_MAX and session.principal is None:
                    raise Corrupt(f"a request of {size} bytes before the login: expected at most {FRAME_BYTES_MAX}")
                if not 8 <= size <= limits.control_request_bytes_max and not may_be_large(
                    size, view[start : self._high], limits
                ):
                    self._need = 6  # check again once the API key has arrived
                    break
                if usage is not None and self._throttling.holds(usage, view[start : min(end, self._high)], size):
                    break
                if self._high < end:
                    self._need = size + 4
                    break
                if is_over_budget and view[start : start + 2] == PRODUCE:
                    self._wait_for_budget()
                    break
                if session is not None and not self._may_take(session, view[start : start + 2]):
                    break
                if size > LARGE_BYTES and not self._may_take_large(view[start : start + 2], size):
                    break
                self._low = end
                self._request(view[start:end], slab)
                if self._transport is None:
                    return
        except BearlakeError as error:
            self._malformed(error)
            return
        if self.waits_for_quota:
            self._shrink()
        self._processed(first)

    # -- pace ----------------------------------------------------------------------------------------------------

    def resume_writing(self) -> None:
        """Called by the event loop when the client has read its responses."""
        super().resume_writing()
        self._pump()

    def _resume_frames(self) -> None:
        self._fetches.start_next()
        self._others.start_next()
        if self._large.waits_for_lane:
            self._waits_for_budget = False  # look again
        super()._resume_frames()

    # -- requests ------------------------------------------------------------------------------------------------

    def _may_take(self, session: SaslSession, api: memoryview) -> bool:
        """Whether the next request may be handled. Raises `Corrupt` if the client has never logged in."""
        if session.is_logged_in or int.from_bytes(api, "big") in LOGIN_APIS:
            return True
        if session.principal is None:
            raise Corrupt("a request before the login")
        self._end_login()
        return False

    def _may_take_large(self, api: memoryview, size: int) -> bool:
        """Whether the next request, which is large, may be handled now: it is a Produce request, or has its turn."""
        if api == PRODUCE:
            return True
        self._has_spoken = True  # also while its first request waits
        lane = self._fetches if int.from_bytes(api, "big") == _FETCH else self._others
        return self._large.may_take(size, is_lane_free=lane.is_free)

    def lane_is_free(self) -> None:
        """Take a large request that waits for the lane."""
        if self._large.waits_for_lane:
            self._resume()

    def _end_login(self) -> None:
        """The login has ended: read no more requests, and close after the last answer."""
        self._meters.closed.labels("ended_login").inc()
        self._is_ending = self._is_finishing = True
        if not self._slots and self._transport is not None:
            self._transport.close()

    def _request(self, frame: memoryview, slab: Slab) -> None:
        key, version = _API_AND_VERSION.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise Corrupt(f"API key {key} is not supported; see ApiVersions")
        header, position = codec.read_request_header(frame)
        turn = self._large.take()
        self._has_spoken = True
        begin(api.what)
        slot = Slot(key)
        self.add(slot)
        if not api.version_min <= version <= api.version_max:
            self.answer(slot, api_versions.unsupported(apis.BY_KEY[api.key], version, header.correlation_id))
            return
        caller = self._caller
        if caller.version != version or caller.client_id != header.client_id or caller.who is not self.who:
            if self.who.client_id != (header.client_id or ""):
                self.who = with_client_id(self.who, header.client_id or "")
            caller = self._caller = Caller(version, self.who, header.client_id, self.listener, self.peer, self.session)
        if key in LOGIN and self.session is not None:
            self._is_logging_in = True
        if key == ApiKey.PRODUCE:
            if version >= produce.VERSION_MIN:
                self._set_lead((caller, bytes(frame[8:position])))
            take = produce.receive if self._quotas.usage is None else self._throttling.receive
            take(self, slot, caller, header.correlation_id, frame, position, slab)
            return
        body = bytes(frame[position:])
        run = within(turn, partial(self._run, slot, caller, header.correlation_id, key, body, turn))
        work = partial(self._throttling.work_through, caller, key, run)
        if key == ApiKey.FETCH:
            self._fetches.add(slot, caller, header.correlation_id, body, work)
        else:
            self._waiting_bytes += len(body)
            self._others.add(key, work)

    def close_if_login_ended(self) -> bool:
        """Close the connection at a request that was held, if the login has ended meanwhile; returns whether it has."""
        if has_ended := not self.is_logged_in or (self.session is None and self._is_ending):
            self.close("a request was held until the login had ended", "ended_login")
        return has_ended

    async def _run(
        self, slot: Slot, caller: Caller, correlation_id: int, key: int, body: bytes, turn: Turn | None
    ) -> None:
        """Decode and answer a request. Requests wait undecoded, because objects take several times the memory."""
        if key != ApiKey.FETCH:
            self._waiting_bytes -= len(body)
        begin(self._apis[key].what)
        try:
            request = await self.context.decode(key, caller.version, body)
        except BearlakeError as error:
            self._malformed(error)
            return
        decoded(turn, key, request)
        if key in ADMINISTRATIVE and self.close_if_abandoned():
            return
        handled = self._apis[key].handle(self.context, caller, request)
        response = await (handled if self._quotas.usage is None else self._throttling.handled(caller, key, handled))
        if key in LOGIN and caller.session is not None:
            self._note_login(caller.session)
        if type(response) is Rendered:
            self.answer(slot, response.frame(correlation_id, codec.response(key, caller.version).header_version))
        else:
            self.answer(slot, await self.context.encode(key, caller.version, correlation_id, response, len(body)))

    def _note_login(self, session: SaslSession) -> None:
        """A request of the login has its answer: continue as the user that is logged in now, or close after the answer."""
        self._is_logging_in = False
        if session.principal is not None and session.principal is not self.who:
            self.who = session.principal
            self._set_lead(None)
        if session.is_refused:
            self._is_ending = self._is_finishing = True

    # -- answers -------------------------------------------------------------------------------------------------

    def answer(self, place: Place, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a place; without chunks its requests get no response. Responses leave in order, in one write per loop iteration."""
        size = 0
        for chunk in chunks:
            size += len(chunk)
        place.chunks = chunks
        place.size = size
        self._ready_bytes += size
        self._apis[place.api].seconds.observe(time.perf_counter() - place.started, place.count)
        is_next = bool(self._slots) and self._slots[0].chunks is not None
        if self._ready_bytes > UNREAD_BYTES_MIN and (self._is_write_paused or not is_next):
            self._record_unread(self.unread_bytes)
        if is_next and not self._is_pumping:
            self._is_pumping = True
            self.context.send_rounds.add(self._loop, self._pump)

    def answer_produced(self, place: Place, frames: bytes) -> None:
        """As `answer`, for Produce requests. If the client waits for nothing else, no response can join theirs: it is sent at once."""
        transport, is_alone = self._transport, len(self._slots) == 1 and self._quotas.usage is None
        # reading is paused also while the client does not read
        is_held = self._is_pumping or self._is_reading_paused or self._is_ending
        if not is_alone or is_held or transport is None or transport.is_closing():
            self.answer(place, (frames,))
            return
        self._slots.clear()
        self._request_count = 0
        self._apis[place.api].seconds.observe(time.perf_counter() - place.started, place.count)
        self._write(transport, (frames,), len(frames))

    def _pump(self) -> None:
        """Send all completed responses. Raises nothing: a bug closes this connection, whose client would wait for its answers forever."""
        self._is_pumping = False
        try:
            self._send_completed() if self._quotas.usage is None else self._throttling.run(self._send_completed)
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "send responses", error, self.failed)

    def _send_completed(self) -> None:
        """Send all completed responses in as few writes as possible: one WAL flush completes many requests."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        slots = self._slots
        while slots and slots[0].chunks is not None and not self._is_write_paused:
            ready: list[codec.Buffer] = []
            size = 0
            while slots and size < _WRITE_BYTES and (chunks := slots[0].chunks) is not None:
                place = slots.popleft()
                self._request_count -= place.count
                if place.api == _FETCH:
                    self._fetches.sent()
                ready += chunks
                size += place.size
            self._ready_bytes -= size
            self._write(transport, ready, size)
        if self._is_ending and not slots:
            self._loop.call_later(self._refusal_s if self.session and self.session.is_refused else 0, transport.close)
            return
        if self._is_reading_paused or self._fetches.waiting or self._others.waiting:
            self._resume()
