import subprocess

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import needs
from tests.service.clients import StreamReader
from tests.service.test_stream import traffic


def scrape(server) -> dict[str, float]:
    text = httpx.get(f"{server.url}/metrics").text
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_equal_the_fold_of_the_events(engine_server):
    with StreamReader(engine_server.events_url) as reader:
        reader.read()
        with traffic(engine_server, 6):
            reader.read()
        reader.read_until_idle()
        metrics, state = scrape(engine_server), reader.state
    totals = state.totals
    assert metrics["glasspool_blocks_capacity"] == 24
    assert metrics["glasspool_blocks|active"] == 0
    assert metrics["glasspool_blocks|free"] + metrics["glasspool_blocks|cached"] == 24
    assert metrics["glasspool_cow_copies_total"] == totals.cow_copies > 0
    assert metrics["glasspool_steps_total"] == totals.steps
    assert metrics["glasspool_preemptions_total|no_free_block"] == sum(totals.preemptions.values())
    assert metrics["glasspool_computed_tokens_total|recompute"] == totals.recompute_tokens
    assert metrics["glasspool_computed_tokens_total|prefill"] == totals.prefill_tokens
    assert metrics["glasspool_requests_scheduled_total|resumed"] == totals.scheduled_resumed
    finished = totals.requests_finished
    assert metrics["glasspool_requests_finished_total|length"] == finished["length"]
    assert metrics["glasspool_blocks_allocated_total|free"] == totals.allocated_free
    assert metrics["glasspool_blocks_allocated_total|evicted"] == totals.evicted
    assert metrics["glasspool_blocks_evicted_total"] == totals.evicted
    assert metrics["glasspool_blocks_released_total"] == totals.released
    assert metrics["glasspool_prefix_cache_queried_tokens_total"] == totals.prefix_queried_tokens
    assert metrics["glasspool_prefix_cache_hit_tokens_total"] == totals.prefix_hit_tokens


def test_gauges_sum_up_while_requests_run(engine_server):
    with StreamReader(engine_server.events_url) as reader, traffic(engine_server, 8):
        reader.read()
        while reader.state.active_blocks < 20:
            reader.read()
        metrics = scrape(engine_server)
    blocks = [metrics[f"glasspool_blocks|{state}"] for state in ("free", "cached", "active")]
    assert sum(blocks) == metrics["glasspool_blocks_capacity"]
    assert metrics["glasspool_slots_allocated"] == blocks[2] * 16
    assert 0 < metrics["glasspool_slots_filled"] <= metrics["glasspool_slots_allocated"]
    assert metrics["glasspool_block_references"] >= blocks[2]
    assert metrics["glasspool_requests|running"] >= 1


@needs("promtool")
def test_promtool_finds_nothing_to_complain_about(engine_server):
    text = httpx.get(f"{engine_server.url}/metrics").text
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
