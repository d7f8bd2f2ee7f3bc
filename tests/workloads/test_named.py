"""Workloads by name: what each shares, exactly; the same for a seed; scaled; refused in one line."""

from itertools import groupby, islice, pairwise
from pathlib import Path
from statistics import fmean

import pytest

from engine.core.config import ConfigError
from engine.workloads.named import (
    PARAMETERS,
    Workload,
    WorkloadSettings,
    parameters_help,
    read_parameters,
)
from engine.workloads.prompts import prompt_bytes

GENERATED = [workload for workload in Workload if workload is not Workload.TRACE]


def made(workload: Workload, count: int = 200, **options):
    options = {"request_rate": 4.0, **options}
    return list(islice(WorkloadSettings(workload=workload, **options).stream(), count))


def prompts(requests, seed: int = 0) -> list[bytes]:
    return [prompt_bytes(seed, number, request) for number, request in enumerate(requests)]


def shared(a: bytes, b: bytes) -> int:
    """Tokens that two prompts have in common from their beginning."""
    return next(
        (at for at, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), len(a)
    )


@pytest.mark.parametrize("workload", GENERATED)
def test_a_seed_gives_the_same_workload_and_another_seed_another(workload):
    assert made(workload, seed=3) == made(workload, seed=3)
    assert made(workload, seed=3) != made(workload, seed=4)


@pytest.mark.parametrize("workload", GENERATED)
def test_requests_come_in_order_at_the_asked_rate(workload):
    requests = made(workload, 4000)
    assert all(later.arrival >= earlier.arrival for earlier, later in pairwise(requests))
    assert 4000 / requests[-1].arrival == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("workload", GENERATED)
def test_rate_and_length_scale_whatever_the_workload(workload):
    plain = made(workload)
    for before, after in zip(plain, made(workload, scale_rate=2, scale_length=0.25), strict=True):
        assert after.arrival == before.arrival / 2
        for name in ("prompt_tokens", "output_tokens", "prefix_block_tokens"):
            if getattr(before, name) or name != "prefix_block_tokens":
                assert getattr(after, name) == max(1, round(getattr(before, name) / 4))
        assert (after.n, after.prefix_ids) == (before.n, before.prefix_ids)


@pytest.mark.parametrize("scale_length", [1, 0.37, 3.3])
def test_a_system_prompt_is_shared_whole_and_nothing_beyond_it(scale_length):
    requests = made(
        *(Workload.SHARED_PROMPT, 100),
        parameters={"prompts": 3, "prompt_len": 200, "share": 0.75},
        scale_length=scale_length,
    )
    system_len = round(200 * scale_length)
    named = [(r.prefix_ids, text) for r, text in zip(requests, prompts(requests), strict=True)]
    assert {ids for ids, _ in named} == {(), (0,), (1,), (2,)}
    assert 60 < sum(bool(ids) for ids, _ in named) < 90
    for (ids, text), (others, other) in pairwise(sorted(named)):
        if ids and ids == others:
            # Own tokens are random bytes, which may agree by chance, but not for long.
            assert system_len <= shared(text, other) < system_len + 4
        else:
            assert shared(text, other) < 4


@pytest.mark.parametrize("share", [0, 1])
def test_none_or_all_may_have_a_system_prompt(share):
    requests = made(Workload.SHARED_PROMPT, parameters={"share": share})
    assert {bool(r.prefix_ids) for r in requests} == {bool(share)}


@pytest.mark.parametrize("scale_length", [1, 0.09, 0.37, 3.3])
def test_a_turn_begins_with_the_whole_prompt_of_the_turn_before(scale_length):
    requests = made(
        Workload.MULTI_TURN, parameters={"turns": 4, "think": 3}, scale_length=scale_length
    )
    by_conversation = sorted(
        zip(requests, prompts(requests), strict=True), key=lambda pair: pair[0].prefix_ids
    )
    whole = 0
    for _, group in groupby(by_conversation, key=lambda pair: pair[0].prefix_ids):
        turns = list(group)
        whole += len(turns) == 4
        for (before, text), (after, longer) in pairwise(turns):
            assert after.arrival > before.arrival
            assert longer.startswith(text)
            # Each length is rounded by itself.
            assert len(longer) >= len(text) + before.output_tokens - 1
    assert whole > 20


def test_conversations_share_nothing_with_each_other():
    requests = made(Workload.MULTI_TURN)
    firsts = {}
    for request, text in zip(requests, prompts(requests), strict=True):
        firsts.setdefault(request.prefix_ids, text)
    assert len(firsts) > 20
    assert all(shared(a, b) < 4 for a, b in pairwise(sorted(firsts.values())))


def test_a_turn_has_the_answer_before_it_in_its_prompt():
    requests = made(
        Workload.MULTI_TURN, 40, sigma=0, input_len=100, output_len=30, parameters={"turns": 3}
    )
    assert {r.prompt_tokens for r in requests} == {100, 230, 360}
    assert {r.output_tokens for r in requests} == {30}


def test_turns_are_as_far_apart_as_the_thinking_takes():
    requests = made(Workload.MULTI_TURN, 6000, parameters={"turns": 2, "think": 7})
    arrivals = {}
    for request in requests:
        arrivals.setdefault(request.prefix_ids, []).append(request.arrival)
    gaps = [times[1] - times[0] for times in arrivals.values() if len(times) == 2]
    assert fmean(gaps) == pytest.approx(7, rel=0.1)


def test_parallel_and_beam_ask_for_four_completions_of_one_prompt():
    plain = made(Workload.LOGNORMAL)
    for workload in (Workload.PARALLEL, Workload.BEAM):
        requests = made(workload)
        assert [r.prompt_tokens for r in requests] == [r.prompt_tokens for r in plain]
        assert {(r.n, r.use_beam_search) for r in requests} == {(4, workload is Workload.BEAM)}
    assert {r.n for r in made(Workload.PARALLEL, parameters={"n": 2})} == {2}
    assert {r.n for r in made(Workload.BEAM, parameters={"width": 3})} == {3}


def test_one_giant_stands_beside_many_short_requests():
    requests = made(Workload.LONG_CONTEXT, 300)
    giants = [number for number, r in enumerate(requests) if r.prompt_tokens == 100_000]
    assert giants == [50, 150, 250]
    assert max(r.prompt_tokens for n, r in enumerate(requests) if n not in giants) < 10_000
    assert (
        made(Workload.LONG_CONTEXT, 3, parameters={"every": 1, "long_len": 7})[0].prompt_tokens == 7
    )


def test_bursts_come_in_their_seconds_only_and_keep_the_mean_rate():
    requests = made(Workload.BURSTS, 4000, parameters={"on": 2, "off": 6})
    assert all(r.arrival % 8 <= 2 for r in requests)
    assert {int(r.arrival // 8) for r in requests} == set(range(int(requests[-1].arrival // 8) + 1))


def test_a_giant_and_a_burst_are_told_in_the_title():
    settings = WorkloadSettings(workload=Workload.LONG_CONTEXT, scale_length=0.5, request_rate=4)
    assert settings.described() == (
        "long-context 256 in, 128 out, long_len 100,000, every 100, lengths × 0.5, 4 requests/s"
    )
    assert WorkloadSettings().described() == "fixed 256 in, 128 out"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"workload": Workload.MULTI_TURN}, "give a --request-rate"),
        ({"workload": Workload.BURSTS, "request_rate": float("inf")}, "give a --request-rate"),
        ({"parameters": {"turns": 3.0}}, "fixed has no parameter turns; it has none"),
        (
            {"workload": Workload.BEAM, "parameters": {"n": 3.0}},
            "beam has no parameter n; it has width",
        ),
        ({"workload": Workload.PARALLEL, "parameters": {"n": 0}}, "n is 0; it is a whole number"),
        ({"workload": Workload.PARALLEL, "parameters": {"n": 1.5}}, "n is 1.5"),
        ({"workload": Workload.PARALLEL, "parameters": {"n": float("inf")}}, "n is inf"),
        ({"workload": Workload.PARALLEL, "parameters": {"n": float("nan")}}, "n is nan"),
        (
            {"workload": Workload.SHARED_PROMPT, "parameters": {"share": 1.5}},
            "share is 1.5; it is a number from 0 to 1",
        ),
        (
            {"workload": Workload.PARALLEL, "parameters": {"n": 1e30}},
            "n is 1e\\+30; it is a whole number from 1 to 128",
        ),
        (
            {"workload": Workload.LONG_CONTEXT, "parameters": {"long_len": 1e30}},
            "long_len is 1e\\+30; it is a whole number from 1 to 10,000,000",
        ),
        ({"input_len": 10**20}, "--input-len is 100000000000000000000; it is at most 10,000,000"),
        ({"output_len": 10**20}, "--output-len is 100000000000000000000; it is at most 10,000,000"),
        ({"trace": Path("x")}, "belong together"),
        ({"scale_rate": 2}, "no times to scale"),
        ({"scale_length": float("inf")}, "--scale-length is inf"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(changed, words):
    with pytest.raises(ConfigError, match=words) as error:
        WorkloadSettings(**changed)
    assert "\n" not in str(error.value)


def test_parameters_are_read_from_a_command_line():
    assert read_parameters(Workload.BURSTS, ["on=2.5", "off=0"]) == {"on": 2.5, "off": 0}
    for text in ("on", "on=", "on=soon"):
        with pytest.raises(ConfigError, match="write it like turns=4"):
            read_parameters(Workload.BURSTS, [text])
    with pytest.raises(ConfigError, match="no parameter of; it has on, off"):
        read_parameters(Workload.BURSTS, ["of=3"])


def test_the_help_names_every_parameter_and_its_default():
    for workload, parameters in PARAMETERS.items():
        for name, parameter in parameters.items():
            assert f"{name}={parameter.default:g} {parameter.meaning}" in parameters_help(), (
                workload
            )


def test_a_trace_keeps_its_times_or_takes_the_asked_rate(tmp_path):
    path = tmp_path / "trace.csv"
    rows = "".join(f"2023-11-16 00:00:{second:02},{second + 1},3\n" for second in range(5))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    trace = {"workload": Workload.TRACE, "trace": path}
    kept = list(WorkloadSettings(**trace).stream())
    assert [(r.arrival, r.prompt_tokens) for r in kept] == [(n, n + 1) for n in range(5)]
    drawn = list(WorkloadSettings(**trace, request_rate=9.0).stream())
    assert [r.arrival for r in drawn] == [
        r.arrival for r in made(Workload.FIXED, 5, request_rate=9)
    ]
