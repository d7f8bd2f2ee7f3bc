"""Traffic with a structure: prompts that begin alike, conversations, several answers, a giant.

What is shared is named (`prefix_ids`), so that it is exact in a simulation and over HTTP alike.
"""

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator

import msgspec

from engine.workloads.lengths import Lengths
from engine.workloads.request import WorkloadRequest


def shared_prompt(
    requests: Iterable[WorkloadRequest], prompts: int, prompt_len: int, share: float, seed: int
) -> Iterator[WorkloadRequest]:
    """Before a `share` of the prompts comes one of `prompts` system prompts of prompt_len tokens.

    The other requests are left as they are.
    """
    draw = random.Random(f"{seed} system prompts")
    for request in requests:
        system_prompt = draw.randrange(prompts)
        if draw.random() < share:
            request = msgspec.structs.replace(
                request,
                prompt_tokens=prompt_len + request.prompt_tokens,
                prefix_ids=(system_prompt,),
                prefix_block_tokens=prompt_len,
            )
        yield request


def multi_turn(
    starts: Iterable[float], lengths: Iterable[Lengths], turns: int, think: float, seed: int
) -> Iterator[WorkloadRequest]:
    """Conversations of `turns` requests, begun at `starts` (seconds, ascending), in order of arrival.

    A turn's message and answer have the drawn lengths. Its prompt is the whole prompt of the turn
    before, that turn's answer, and the message; the first is a message alone. The next turn comes
    `think` seconds later on average, whether or not the answer has ended by then: this is an open
    loop.

    A prompt's tokens are fixed beforehand, so the answer inside the next prompt has the right length
    but other tokens than the server gave. The prompt before can be shared to its last token; the
    answer can not, though in a real conversation its full blocks could.
    """
    draw = random.Random(f"{seed} thinking")
    lengths = iter(lengths)
    coming: list[tuple[float, int, WorkloadRequest]] = []
    number = itertools.count()
    for conversation, start in enumerate(starts):
        while coming and coming[0][0] <= start:
            yield heapq.heappop(coming)[2]
        prompts = list(_growing(itertools.islice(lengths, turns)))
        longest = prompts[-1].prompt
        arrival = start
        for prompt, output in prompts:
            request = WorkloadRequest(arrival, prompt, output, (conversation,), longest)
            heapq.heappush(coming, (arrival, next(number), request))
            arrival += draw.expovariate(1 / think)
    while coming:
        yield heapq.heappop(coming)[2]


def _growing(messages: Iterable[Lengths]) -> Iterator[Lengths]:
    said = 0
    for message, answer in messages:
        yield Lengths(said + message, answer)
        said += message + answer


def completions(
    requests: Iterable[WorkloadRequest], n: int, use_beam_search: bool = False
) -> Iterator[WorkloadRequest]:
    """The same requests, each for n answers of the drawn length, or as a search with n beams."""
    for request in requests:
        yield msgspec.structs.replace(request, n=n, use_beam_search=use_beam_search)


def long_context(
    requests: Iterable[WorkloadRequest], long_len: int, every: int
) -> Iterator[WorkloadRequest]:
    """One prompt in `every` has long_len tokens: the middle one of so many requests."""
    for number, request in enumerate(requests):
        if number % every == every // 2:
            request = msgspec.structs.replace(request, prompt_tokens=long_len)
        yield request
