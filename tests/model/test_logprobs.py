"""Logprobs are those of the model: of drawn tokens, of beams' candidates and of prompts."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.core.config import SamplingParams
from engine.core.plan import Plan, Row
from engine.core.sequence import Request, Sequence
from engine.model.logprobs import ROWS_AT_ONCE, token_logprobs
from engine.model.runner import ModelRunner
from engine.model.sampler import sample
from engine.model.weights import load_model

BLOCK = 4


def sequence(prompt=(1, 2, 3), table=(), request_id="r", **params):
    request = Request(request_id, list(prompt), SamplingParams(seed=0, **params), 0.0)
    one = Sequence(0, request, 0, list(prompt))
    one.table = list(table)
    request.sequences.append(one)
    return one


def check(chosen, top, scores, token, count) -> None:
    """scores: [vocabulary], log probabilities that were computed another way."""
    assert (chosen.token, chosen.rank) == (token, int((scores > scores[token]).sum()) + 1)
    assert chosen.logprob == pytest.approx(float(scores[token]), abs=2e-5)
    best = scores.topk(count)
    assert [entry.token for entry in top] == best.indices.tolist()
    assert [entry.logprob for entry in top] == pytest.approx(best.values.tolist(), abs=2e-5)
    assert [entry.rank for entry in top] == list(range(1, count + 1))


# -- drawn tokens -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 7])
def test_logprobs_are_the_model_s_whatever_bends_the_draw(count):
    torch.manual_seed(0)
    logits = torch.randn(4, 200)
    bends = [
        {"temperature": 0},
        {"temperature": 2.0, "top_p": 0.8},
        {"logit_bias": {9: 50.0}, "temperature": 0.3},
        {"repetition_penalty": 2.0, "min_p": 0.1, "top_k": 50},
    ]
    drawn = sample(logits, [sequence(logprobs=count, **b) for b in bends], frozenset())
    assert drawn[2].token == 9
    for row, one in enumerate(drawn):
        scores = logits[row].double().log_softmax(-1)
        check(one.chosen, one.top, scores, one.token, count)


def test_only_who_asks_is_told():
    one, other = sample(
        torch.zeros(2, 10), [sequence(), sequence(logprobs=2, temperature=0)], frozenset()
    )
    assert one.chosen is None
    assert one.top == ()
    assert other.chosen is not None
    assert len(other.top) == 2


def test_equals_share_a_rank_and_come_in_the_order_of_their_ids():
    scores = torch.zeros(1, 3000)
    scores[0, 2900] = 1.0
    scores[0, 5] = -1.0
    ((chosen, top),) = token_logprobs(scores, [77], [8])
    assert [(entry.token, entry.rank) for entry in top] == [
        (2900, 1),
        *((token, 2) for token in (0, 1, 2, 3, 4, 6, 7)),
    ]
    assert chosen.rank == 2
    ((lowest, _),) = token_logprobs(scores, [5], [0])
    assert lowest.rank == 3000


def test_more_of_the_best_than_the_vocabulary_has_are_all():
    ((_, top),) = token_logprobs(torch.tensor([[0.0, 1.0, 2.0]]), [0], [20])
    assert [entry.token for entry in top] == [2, 1, 0]


def test_many_rows_give_what_each_gives_alone():
    torch.manual_seed(0)
    count = 2 * ROWS_AT_ONCE + 3
    logits = torch.randn(count, 60)
    tokens, tops = [7 * row % 60 for row in range(count)], [row % 4 for row in range(count)]
    alone = [
        token_logprobs(logits[row : row + 1], [tokens[row]], [tops[row]])[0] for row in range(count)
    ]
    assert token_logprobs(logits, tokens, tops) == alone


def test_a_beam_gets_its_2_n_best_candidates():
    torch.manual_seed(0)
    logits = torch.randn(2, 100)
    logits[1, [40, 30, 20]] = 9.0
    asks = {"use_beam_search": True, "n": 2}
    drawn = sample(logits, [sequence(**asks), sequence(**asks, temperature=0)], frozenset())
    best = logits[0].double().log_softmax(-1).topk(4)
    assert [entry.token for entry in drawn[0].top] == best.indices.tolist()
    assert [entry.logprob for entry in drawn[0].top] == pytest.approx(
        best.values.tolist(), abs=1e-5
    )
    assert [entry.token for entry in drawn[1].top[:3]] == [20, 30, 40]
    assert [one.token for one in drawn] == [one.top[0].token for one in drawn]


# -- prompts ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(tiny_model):
    return load_model(str(tiny_model), torch.float32, print)


@pytest.fixture(scope="module")
def reference(tiny_model):
    """Log probabilities of a plain forward pass: [positions, vocabulary]."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)

    def scores(tokens: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)

    return scores


@pytest.fixture
def runner(loaded):
    return ModelRunner(
        loaded.model,
        32,
        BLOCK,
        loaded.num_layers,
        loaded.num_kv_heads,
        loaded.head_dim,
        eos_token_ids=loaded.eos_token_ids,
    )


def prompt_of(length: int) -> list[int]:
    torch.manual_seed(length)
    return torch.randint(0, 256, (length,)).tolist()


def step(runner, *rows: Row):
    """Run rows as the engine does; returns the output and how many logits were computed."""
    plan = Plan()
    plan.rows += rows
    logits = runner.run(plan)
    output = runner.sample(logits, plan)
    for row in rows:
        row.sequence.computed += row.count
        request = row.sequence.request
        request.prompt_tokens += output.prompt_tokens.get(request.request_id, [])
    return output, len(logits)


@pytest.mark.parametrize("chunks", [[19], [1, 18], [4, 4, 4, 4, 3], [7, 11, 1], [1] * 19])
def test_prompt_logprobs_equal_a_plain_forward_in_any_chunks(runner, reference, chunks):
    one = sequence(prompt_of(19), [7, 2, 30, 11, 5], prompt_logprobs=3, temperature=0, logprobs=3)
    told, drawn = [], []
    for number, count in enumerate(chunks):
        last = number == len(chunks) - 1
        output, _ = step(runner, Row(one, one.computed, count, [one] if last else []))
        told += output.prompt_tokens.get("r", [])
        drawn += output.drawn
    scores = reference(one.tokens)
    assert [entry.position for entry in told] == list(range(1, 19))
    for entry in told:
        q = entry.position
        check(entry.chosen, entry.top, scores[q - 1], one.tokens[q], 3)
    (answer,) = drawn
    check(answer.chosen, answer.top, scores[-1], int(scores[-1].argmax()), 3)


def test_prompt_tokens_are_told_once(runner):
    one = sequence(prompt_of(9), [1, 2, 3], prompt_logprobs=0)
    first, _ = step(runner, Row(one, one.computed, 5, []))
    assert [entry.position for entry in first.prompt_tokens["r"]] == [1, 2, 3, 4, 5]
    one.computed = 0
    again, computed = step(runner, Row(one, one.computed, 9, [one]))
    assert [entry.position for entry in again.prompt_tokens["r"]] == [6, 7, 8]
    assert computed == 3 + 1
    one.computed = 0
    one.tokens.append(again.drawn[0].token)
    third, computed = step(runner, Row(one, one.computed, 10, [one]))
    assert third.prompt_tokens == {}
    assert computed == 1


def test_a_step_that_needs_no_logits_computes_none(runner):
    one = sequence(prompt_of(9), [1, 2, 3])
    output, computed = step(runner, Row(one, one.computed, 5, []))
    assert computed == 0
    assert output.drawn == []
    assert output.prompt_tokens == {}


def test_rows_of_all_kinds_share_a_step(runner, reference):
    """A part of a prompt, forked completions, and a prompt to be told, each with its own logits."""
    part = sequence(prompt_of(8), [1, 2], request_id="part")
    forked = sequence(prompt_of(6), [3, 4], request_id="forked", n=3, temperature=0, logprobs=0)
    children = [Sequence(i, forked.request, i, list(forked.tokens)) for i in (1, 2)]
    asks = sequence(prompt_of(7), [9, 8], request_id="asks", prompt_logprobs=2, temperature=0)
    other = sequence(prompt_of(5), [6, 5], request_id="other", prompt_logprobs=1)
    output, computed = step(
        runner,
        Row(part, part.computed, 5, []),
        Row(asks, asks.computed, 7, [asks]),
        Row(forked, forked.computed, 6, [forked, *children]),
        Row(other, other.computed, 3, []),
    )
    assert computed == 2 + 6 + 3
    best = {s: int(reference(s.tokens)[-1].argmax()) for s in (asks, forked)}
    assert [one.token for one in output.drawn] == [best[asks]] + [best[forked]] * 3
    assert [one.chosen is None for one in output.drawn] == [True, False, False, False]
    assert list(output.prompt_tokens) == ["asks", "other"]
    for one, count, positions in ((asks, 2, range(1, 7)), (other, 1, range(1, 4))):
        told = output.prompt_tokens[one.request.request_id]
        assert [entry.position for entry in told] == list(positions)
        scores = reference(one.tokens)
        for entry in told:
            q = entry.position
            check(entry.chosen, entry.top, scores[q - 1], one.tokens[q], count)


def test_the_runner_knows_what_ends_a_sequence(runner, loaded):
    """With every other token biased away, only min_tokens keeps the end of the sequence out."""
    (eos,) = loaded.eos_token_ids
    bias = {eos: 100.0, 5: 50.0}
    for min_tokens, token in ((0, eos), (1, 5)):
        one = sequence(prompt_of(4), [1], temperature=0, logit_bias=bias, min_tokens=min_tokens)
        output, _ = step(runner, Row(one, one.computed, 4, [one]))
        assert output.drawn[0].token == token
