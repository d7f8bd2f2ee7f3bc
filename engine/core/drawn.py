"""What a runner says of a step: the tokens it drew, and how likely they were."""

import msgspec


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token, its natural log probability under the model, and its rank (1 is the most likely).

    Of the model's own distribution, before temperature, penalties and the like.
    """

    token: int
    logprob: float
    rank: int


class Drawn(msgspec.Struct, frozen=True):
    """The token drawn for one sequence.

    `chosen` and `top` (the most likely tokens, best first) are filled where the request asks for
    logprobs. For a beam, `top` has its 2 n best candidates and `token` is the first of them.
    """

    token: int
    chosen: TokenLogprob | None = None
    top: tuple[TokenLogprob, ...] = ()


class PromptToken(msgspec.Struct, frozen=True):
    """How likely one prompt token was, given those before it, and what else was likely."""

    position: int
    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


class StepOutput(msgspec.Struct, frozen=True):
    """`drawn` has one entry for each of the plan's samples, in order. `prompt_tokens`, by request id,
    are the prompt positions that this step computed for requests that ask for prompt_logprobs."""

    drawn: list[Drawn]
    prompt_tokens: dict[str, list[PromptToken]] = {}
