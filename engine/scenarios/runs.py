"""The scenarios themselves: each shows one thing, on a pool that is as small as it takes."""

from engine.scenarios.scenario import Ask, Scenario
from engine.scenarios.texts import LIBRARIAN, OTHER_LIBRARIAN, REPORT, TOPICS, harbour_log
from engine.workloads.chat import QUESTIONS

_OUTPUTS = (24, 170, 60, 40, 130, 20, 90, 190, 36, 76, 150, 50)
_DOZEN = tuple(
    Ask(question, max_tokens) for question, max_tokens in zip(QUESTIONS, _OUTPUTS, strict=False)
)
"""Twelve requests of very different length, all there at the start."""
_SLOTS = 2048

_GROWING = tuple(
    Ask(question, 100 + 8 * number, at=4 * number) for number, question in enumerate(QUESTIONS[:7])
)
"""Seven requests that all fit at the start and cannot all fit at the end of their answers."""


def _dozen(name: str, block_size: int, shows: str) -> Scenario:
    sizes = {
        "block_size": block_size,
        "num_gpu_blocks_override": _SLOTS // block_size,
        "max_model_len": 512,
        "enable_prefix_caching": False,
        "watermark": 0.0,
    }
    return Scenario(name, shows, _DOZEN, sizes)


SCENARIOS = (
    Scenario(
        "block-table",
        "two requests that take blocks in turn: logical blocks in order, physical ones scattered; a "
        "block is allocated when the token comes that needs it, not before",
        (
            Ask("Why is the sky blue?", 64),
            Ask("Write four lines about the sea in winter.", 64, at=3),
        ),
        {"num_gpu_blocks_override": 24},
    ),
    Scenario(
        "parallel-sampling",
        "one prompt, n = 4: stored once, shared by four sequences, the last partial block copied at "
        "the first write of each sequence but the last",
        (Ask(REPORT, 56, n=4, temperature=0.9),),
        {"num_gpu_blocks_override": 64, "enable_prefix_caching": False},
    ),
    Scenario(
        "four-requests",
        "the prompt of parallel-sampling as four requests without prefix caching: stored four times",
        tuple(Ask(REPORT, 56, temperature=0.9) for _ in range(4)),
        {"num_gpu_blocks_override": 64, "enable_prefix_caching": False},
    ),
    Scenario(
        "beam-search",
        "four beams: they fork from the best, the overtaken ones are pruned and their blocks freed in "
        "the same step",
        (Ask("Finish this sentence in a new way: the old clock", 40, n=4, use_beam_search=True),),
        {"num_gpu_blocks_override": 48},
    ),
    Scenario(
        "prefix-cache",
        "one long system prompt, several questions: computed once, shared by running requests and by "
        "later ones; a prompt that differs in its first words shares nothing; the same one again "
        "still computes its last token",
        (
            Ask("Where are the maps?", 32, system=LIBRARIAN),
            Ask("I am in a hurry. Where is music?", 32, at=8, system=LIBRARIAN),
            Ask("When do you open on Sundays?", 24, at=60, system=LIBRARIAN),
            Ask("Where are the maps?", 24, at=120, system=OTHER_LIBRARIAN),
            Ask("Where are the maps?", 24, at=180, system=LIBRARIAN),
            Ask("Good morning", 24, at=240, raw=True),
        ),
        {"num_gpu_blocks_override": 64},
    ),
    Scenario(
        "eviction-order",
        "finished requests stay cached until others need their blocks: the least recently used goes "
        "first, its tail before its head; asked again, a recent one finds all that it needs, an old one "
        "the head that is left",
        (
            *(Ask(text, 24, at=40 * number) for number, text in enumerate(TOPICS)),
            Ask(TOPICS[2], 24, at=160),
            Ask(TOPICS[0], 24, at=200),
        ),
        {"num_gpu_blocks_override": 14},
    ),
    Scenario(
        "pool-runs-dry",
        "seven growing requests on 34 blocks, no prefix caching: the pool runs dry, the youngest lose "
        "their blocks and compute their tokens again",
        _GROWING,
        {"num_gpu_blocks_override": 34, "enable_prefix_caching": False, "watermark": 0.0},
    ),
    Scenario(
        "pool-ample",
        "the requests of pool-runs-dry on 80 blocks: nothing is preempted",
        _GROWING,
        {"num_gpu_blocks_override": 80, "enable_prefix_caching": False, "watermark": 0.0},
    ),
    _dozen(
        "naive-reservation",
        512,
        "a dozen requests in 2,048 slots, each with a reservation of max_model_len 512 (one block of "
        "512): four run at once, most of the memory holds nothing",
    ),
    _dozen("block-4", 4, "the dozen of naive-reservation in blocks of 4: long tables"),
    _dozen("block-16", 16, "the same in blocks of 16: all twelve run at once"),
    _dozen("block-128", 128, "the same in blocks of 128: the last block of each is half empty"),
    Scenario(
        "long-context",
        "a prompt of more than a thousand tokens comes between short requests: it is computed in "
        "chunks, takes most of the pool, and those that come after it wait",
        (
            *(Ask(QUESTIONS[number], 48, at=4 * number) for number in range(4)),
            Ask(harbour_log(32), 24, at=20),
            *(Ask(QUESTIONS[4 + number], 48, at=24 + 4 * number) for number in range(6)),
        ),
        {"num_gpu_blocks_override": 96, "long_prefill_token_threshold": 256},
    ),
    Scenario(
        "multi-turn",
        "a conversation of three turns: each prompt begins with all that was said, and finds it cached",
        (
            Ask("What should I pack for a week on a small boat?", 48),
            Ask("And if it rains all the time?", 48, at=1, follows=0),
            Ask("Put the three most important things in order.", 48, at=2, follows=1),
        ),
        {"num_gpu_blocks_override": 48},
    ),
)
