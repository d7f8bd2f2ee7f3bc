"""The bodies that `bench serve` sends: prompts of an asked length that need no tokenizer.

Completions get token ids, so the length is exact. They are drawn from 128..255: every vocabulary in
use has these ids, and most keep their special tokens elsewhere. Chat gets as many short English
words, about one token each; what the server counted is in its usage. The text means nothing, so
answers end where max_tokens says, or anywhere.

Prompts differ from one another from their first token on, so that a prefix cache has nothing to
share, but for blocks to which a workload gives equal names: these are equal here too.

A request for several answers draws them, by a seed of its own: greedy ones would be all the same, and
some servers refuse that. All may be as long as the longest one that the workload names. A beam search
is asked whole: servers don't stream it.
"""

from enum import StrEnum

import msgspec

from engine.workloads.prompts import prompt_bytes
from engine.workloads.request import WorkloadRequest

WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world"),
    *("school", "state", "family", "student", "group", "country", "problem", "hand", "part"),
    *("place", "case", "week", "company", "system", "program", "question", "work", "night"),
    *("point", "home", "water", "room", "mother", "area", "money", "story", "fact", "month"),
    *("lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side", "kind"),
    *("head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end"),
    *("member", "law", "car", "city"),
)
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
_BYTE_TO_ID = bytes(128 + byte % 128 for byte in range(256))
_BYTE_TO_WORD = tuple(WORDS[byte % len(WORDS)] for byte in range(256))


class Endpoint(StrEnum):
    """Which of the two OpenAI routes is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


class Prompts:
    """Makes request bodies; the same for a seed."""

    def __init__(self, endpoint: Endpoint, model: str, ignore_eos: bool, seed: int) -> None:
        self.endpoint = endpoint
        self.seed = seed
        self._common = {
            "model": model,
            # Sent only where asked for: OpenAI's own service refuses parameters it does not know.
            **({"ignore_eos": True} if ignore_eos else {}),
        }

    def body(self, number: int, request: WorkloadRequest) -> bytes:
        """The JSON body of request `number` of the run."""
        drawn = prompt_bytes(self.seed, number, request)
        if self.endpoint is Endpoint.COMPLETIONS:
            prompt = {"prompt": list(drawn.translate(_BYTE_TO_ID))}
        else:
            text = " ".join(_BYTE_TO_WORD[byte] for byte in drawn)
            prompt = {"messages": [{"role": "user", "content": text}]}
        if request.use_beam_search:
            way = {"n": request.n, "use_beam_search": True, "temperature": 0}
        elif request.n > 1:
            way = {"n": request.n, "temperature": 1, "seed": number, **_STREAMED}
        else:
            way = {"temperature": 0, **_STREAMED}
        asked = {"max_tokens": request.output_tokens, **way}
        return msgspec.json.encode({**self._common, **asked, **prompt})
