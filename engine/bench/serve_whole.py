"""What an answer that is not streamed tells: its choices and the tokens that were counted.

It comes in one piece when all of it is known, so nothing is known of its first token, nor of the time
between tokens. A beam search is answered like that: its text is settled at its end.
"""

import msgspec

from engine.bench.serve_stream import Usage, error_message


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: object = None


class WholeReading:
    """One answer, read piece by piece. With what StreamReading tells; what it can't tell is None.

    n: choices that were asked for. prompt_tokens, output_tokens: from the server's usage, all choices
    together; None before `fault` was asked, and where the server sent none.
    """

    media_type = "application/json"
    first = last = chunks = None
    gaps = ()

    def __init__(self, n: int) -> None:
        self.n = n
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self._body = b""

    def feed(self, data: bytes, now: float) -> None:
        """Take what was read from the connection; when does not matter."""
        self._body += data

    def fault(self) -> str | None:
        """Once the connection has ended: why this is no whole answer; None where it is one."""
        try:
            answer = msgspec.json.decode(self._body, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return f"the answer is not valid: {error}"
        if answer.error is not None:
            return error_message(self._body)
        if answer.usage is not None:
            self.prompt_tokens = answer.usage.prompt_tokens
            self.output_tokens = answer.usage.completion_tokens
        ended = sum(choice.finish_reason is not None for choice in answer.choices or ())
        if ended < self.n:
            return f"the answer has {ended} of {self.n} choices with a finish reason"
        return None
