"""What one streamed answer tells: when its pieces came, how it ended, which tokens were counted.

A content chunk is a choice in a server-sent event that has text (completions), or content or
reasoning (chat). An inter-token latency here is the gap between two content chunks of one choice as
the client read them: a chunk of several tokens is one gap, and chunks that arrive in one read have a
gap of 0.
"""

import msgspec


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    def has_text(self) -> bool:
        delta = self.delta or _Delta()
        return bool(self.text or delta.content or delta.reasoning_content or delta.reasoning)


class Usage(msgspec.Struct):
    """Tokens as a server counted them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: object = None


_DECODER = msgspec.json.Decoder(_Chunk)


class StreamReading:
    """One answer, read piece by piece. Times are seconds on the caller's monotonic clock.

    n: choices that were asked for. first, last: when the first and the last content chunk came; None
    before. gaps: between content chunks of a choice. prompt_tokens, output_tokens: from the server's
    usage, all choices together; None where it sent none.
    """

    media_type = "text/event-stream"

    def __init__(self, n: int = 1) -> None:
        self.n = n
        self.first: float | None = None
        self.last: float | None = None
        self.gaps: list[float] = []
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self._latest: dict[int, float] = {}
        self._finished: set[int] = set()
        self._done = False
        self._fault: str | None = None
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        """Take what was read from the connection at `now`: any piece of the stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now)

    @property
    def chunks(self) -> int:
        """Content chunks that came."""
        return len(self.gaps) + len(self._latest)

    def fault(self) -> str | None:
        """Once the connection has ended: why this is no whole answer; None where it is one."""
        if self._fault is None and not self._done and len(self._finished) < self.n:
            return "the stream ended without a finish reason or [DONE]"
        return self._fault

    def _take(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            chunk = _DECODER.decode(payload)
        except msgspec.MsgspecError as error:
            self._fault = self._fault or f"a chunk of the stream is not valid: {error}"
            return
        if chunk.error is not None:
            self._fault = self._fault or error_message(payload)
        if chunk.usage is not None:
            self.prompt_tokens = chunk.usage.prompt_tokens
            self.output_tokens = chunk.usage.completion_tokens
        for choice in chunk.choices or ():
            if choice.finish_reason is not None:
                self._finished.add(choice.index)
            if choice.has_text():
                self._content(choice.index, now)

    def _content(self, index: int, now: float) -> None:
        if self.first is None:
            self.first = now
        if index in self._latest:
            self.gaps.append(now - self._latest[index])
        self.last = self._latest[index] = now


class _ErrorBody(msgspec.Struct):
    error: dict | str | None = None
    message: str | None = None
    detail: object = None


def error_message(body: bytes) -> str:
    """The sentence in an error's body, OpenAI's shape or another; the body's start where none is."""
    try:
        decoded = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        decoded = _ErrorBody()
    error = decoded.error.get("message") if isinstance(decoded.error, dict) else decoded.error
    found = error or decoded.message or decoded.detail or body.decode(errors="replace")
    return " ".join(str(found).split())[:200] or "an error without a message"
