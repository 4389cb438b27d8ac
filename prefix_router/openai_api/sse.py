"""Watch a server-sent event stream from the side: first content, usage, terminal event, error.

The relay hands every chunk to the observer and forwards the very same chunk, whatever happens here.

Why not a plain parser: a stream is thousands of token events of which three or four matter. Until the
first content every event is decoded. After it an event is decoded only if a *mark* occurs in its bytes, and
the normal case (the chunk holds whole events without a mark) costs a few substring scans and keeps nothing.
A mark can only be missed if JSON hid it behind escapes, which no server does to plain ASCII keys. A mark
that is merely part of generated text costs one decode and changes nothing, because inside a JSON string
a quote is `\\"` and a line break is `\\n`: text cannot forge a key or the start of a line.

Grammar: `data:` with or without the space, CRLF, LF or CR, comments, several data lines for one event,
split at any byte. Every split gives the same result as one piece.

Cost: linear in the bytes. Memory: one unfinished event, its data and its last line at most `limit_bytes`
each; an event with a longer line, or with more data, is passed over as a whole. Never raises; never
blocks; never changes a byte.
"""

from __future__ import annotations

import msgspec

from prefix_router.openai_api.usage import (
    ABSENT,
    UNDECODABLE,
    Usage,
    WireUsage,
    response_object,
    wire_usage,
)

MAX_EVENT_BYTES = 1024 * 1024

_EVENT_ENDS = (b"\n\n", b"\n\r\n")
_EMPTY_VALUES = frozenset((b"null", b'""', b"[]", b"{}"))
_TERMINAL_TYPES = frozenset(("message_stop", "response.completed", "response.failed", "response.incomplete"))
_ERROR_TYPES = frozenset(("error", "response.failed"))


class _Choice(msgspec.Struct):
    """A choice of a chat event (`delta`), of a completion event (`text`) or of raw tokens (`token_ids`)."""

    delta: dict[str, msgspec.Raw] | None = None
    text: msgspec.Raw = ABSENT
    token_ids: msgspec.Raw = ABSENT

    def has_content(self) -> bool:
        """Whether anything was generated: a delta of any kind, known today or not, but the bare role."""
        if bytes(self.text) not in _EMPTY_VALUES or bytes(self.token_ids) not in _EMPTY_VALUES:
            return True
        return self.delta is not None and any(
            name != "role" and bytes(value) not in _EMPTY_VALUES for name, value in self.delta.items()
        )


class _Event(msgspec.Struct):
    """What is read of an event's data, in all dialects at once.

    `message` is Anthropic's `message_start`, `response` the nested object of the Responses API. Parts stay
    undecoded so that a strange one does not spoil the others.
    """

    type: str | None = None
    choices: list[_Choice] | None = None
    delta: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT
    message: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT

    def has_content(self) -> bool:
        """Whether this event carries generated content, in a delta of its own or in one of its choices."""
        if self.type is not None and self.type.endswith((".delta", "content_block_delta")):
            return bytes(self.delta) not in _EMPTY_VALUES
        return self.choices is not None and any(choice.has_content() for choice in self.choices)


_EVENT = msgspec.json.Decoder(_Event)


def _has_mark(data: bytes) -> bool:
    """Whether these bytes can matter after the first content.

    `"response"` is the key of the nested object in the Responses API's life-cycle events, which include
    its terminal ones.
    """
    # Searching a str is three times as fast: `in` on bytes first tries to take the needle for an integer.
    text = data.decode("latin-1")
    return (
        '"usage"' in text
        or "[DONE]" in text
        or "error" in text
        or '"response"' in text
        or "message_stop" in text
    )


class SseObserver:
    """Watches one response stream.

    first_content: the first generated content has arrived, in the chunk last fed when this has just turned
    true. Comments, pings, role-only deltas and life-cycle events are not content.
    terminal: the event that ends a stream has arrived: `[DONE]`, `message_stop`, `response.completed`,
    `response.failed` or `response.incomplete`.
    error: an error came as an event, under a status of 200.
    response_id: the id of a Responses API response, as soon as an event names it.
    """

    __slots__ = (
        "_after_cr",
        "_between_events",
        "_data",
        "_data_bytes",
        "_limit_bytes",
        "_line",
        "_line_too_long",
        "_name",
        "_oversized",
        "_usage",
        "error",
        "first_content",
        "response_id",
        "terminal",
    )

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._line_too_long = False
        self._after_cr = False
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._oversized = False
        self._between_events = True
        self._usage: WireUsage | None = None
        self.first_content = False
        self.terminal = False
        self.error = False
        self.response_id: str | None = None

    @property
    def usage(self) -> Usage | None:
        """The last token counts seen, merged where a dialect splits them over two events."""
        return None if self._usage is None else self._usage.usage()

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes of the stream."""
        if not self.first_content or _has_mark(chunk):
            self._read_lines(chunk)
        elif not (self._between_events and chunk.endswith(_EVENT_ENDS)):
            self._pass_over(chunk)

    def finish(self) -> None:
        """Take what is left as complete: the stream has ended, perhaps without its last line break."""
        if self._line or self._line_too_long:
            self._end_line(b"")
        self._end_event()

    def _pass_over(self, chunk: bytes) -> None:
        """Read only the end of an event begun before this chunk, and the start of one that goes on after."""
        last_end = chunk.rfind(b"\n\n")
        if last_end == -1:
            self._read_lines(chunk)
            return
        if not self._between_events:
            self._read_lines(chunk[: chunk.find(b"\n\n") + 2])
        self._read_lines(chunk[last_end + 2 :])

    def _read_lines(self, chunk: bytes) -> None:
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()
        unfinished = b"" if chunk.endswith((b"\n", b"\r")) or not lines else lines.pop()
        for line in lines:
            self._end_line(line)
        if unfinished:
            self._hold(unfinished)
        self._between_events = not (
            self._line or self._data or self._name or self._line_too_long or self._oversized or self._after_cr
        )

    def _hold(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > self._limit_bytes:
            self._line_too_long = True
            self._line.clear()
        elif not self._line_too_long:
            self._line += piece

    def _end_line(self, rest: bytes) -> None:
        if self._line or self._line_too_long or len(rest) > self._limit_bytes:
            self._hold(rest)
            rest = bytes(self._line)
            self._line.clear()
            self._oversized |= self._line_too_long
            self._line_too_long = False
            if self._oversized:
                return
        if not rest:
            self._end_event()
        elif rest.startswith(b"data:"):
            self._keep_data(rest[6:] if rest.startswith(b"data: ") else rest[5:])
        elif rest.startswith(b"event:"):
            self._name = rest[6:].strip()

    def _keep_data(self, data: bytes) -> None:
        self._data_bytes += len(data) + 1  # the line break counts too: empty lines must not add up for free
        if self._data_bytes > self._limit_bytes:
            self._oversized = True
            self._data.clear()
        else:
            self._data.append(data)

    def _end_event(self) -> None:
        name, lines, oversized = self._name, self._data, self._oversized
        if not (name or lines or oversized):
            return
        self._name, self._data, self._data_bytes, self._oversized = b"", [], 0, False
        if not lines or oversized:
            return
        data = lines[0] if len(lines) == 1 else b"\n".join(lines)
        if not self.first_content or _has_mark(data) or (name and _has_mark(name)):
            self._read_event(name, data)

    def _read_event(self, name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.terminal = True
            return
        try:
            event = _EVENT.decode(data)
        except UNDECODABLE:
            return
        kinds = {event.type, name.decode("ascii", "replace")}
        if not kinds.isdisjoint(_TERMINAL_TYPES):
            self.terminal = True
        if not kinds.isdisjoint(_ERROR_TYPES) or bytes(event.error) not in _EMPTY_VALUES:
            self.error = True
        if not self.first_content:
            self.first_content = event.has_content()
        self._read_usage(event.usage)
        for nested in (event.message, event.response):
            inner = None if nested is ABSENT else response_object(nested)
            if inner is not None:
                self._read_usage(inner.usage)
                self.response_id = self.response_id or inner.response_id()

    def _read_usage(self, raw: msgspec.Raw) -> None:
        newer = None if raw is ABSENT else wire_usage(raw)
        if newer is None:
            return
        if self._usage is None:
            self._usage = newer
        else:
            self._usage.update(newer)
