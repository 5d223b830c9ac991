"""What a scrape of a replica shows: every name that dashboards and autoscalers rely on, with its type, from the first scrape on."""

import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.engine import GatewayStub, running_engine
from tests.harness.ports import free_port
from tests.harness.tiny_model import NAME

Scrape = dict[str, Metric]

GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"]
COUNTERS = [
    "prompt_tokens",
    "generation_tokens",
    "num_preemptions",
    "corrupted_requests",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
]
COUNTERS_BY_REASON = {"request_success": "finished_reason", "admission_rejections": "reason"}
HISTOGRAMS = [
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_max_tokens",
    "iteration_tokens_total",
]
OURS = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "cache_config_info": "gauge",
    "heartbeat_age_seconds": "gauge",
    "num_cached_blocks": "gauge",
    "prefix_cache_queries": "counter",
    "prefix_cache_hits": "counter",
    "prefix_cache_evictions": "counter",
    "prompt_tokens": "counter",
    "generation_tokens": "counter",
    "num_preemptions": "counter",
    "spec_decode_num_drafts": "counter",
    "spec_decode_num_draft_tokens": "counter",
    "spec_decode_num_accepted_tokens": "counter",
    "discarded_tokens": "counter",
    "corrupted_requests": "counter",
    "failed_runs": "counter",
    "refusals": "counter",
    "attempts": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "request_duration_seconds": "histogram",
    "queue_time_seconds": "histogram",
    "prefill_time_seconds": "histogram",
    "decode_time_seconds": "histogram",
    "inference_time_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
    "request_max_tokens": "histogram",
    "step_duration_seconds": "histogram",
    "step_tokens": "histogram",
}


def scrape(port: int) -> Scrape:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture
async def scrapes(tmp_path: Path) -> AsyncIterator[tuple[Scrape, Scrape]]:
    """Before the first request, and after two equal answers and one refusal."""
    port = free_port()
    async with running_engine(tmp_path, metrics_port=port) as (_, channel):
        before = scrape(port)
        gateway = await GatewayStub(channel).hello()
        await gateway.run("a", max_output_tokens=5)
        await gateway.run("a again", max_output_tokens=5)
        await gateway.run("b", prompt_token_ids=[])
        yield before, scrape(port)


def value(scrape: Scrape, family: str, sample: str, **labels: str) -> float:
    (found,) = [one.value for one in scrape[family].samples if one.name == sample and one.labels.items() >= labels.items()]
    return found


async def test_scrape_has_every_name_with_its_type_and_model_from_the_start(scrapes: tuple[Scrape, Scrape]) -> None:
    wanted = {f"vllm:{name}": "gauge" for name in GAUGES}
    wanted |= {f"vllm:{name}": "counter" for name in (*COUNTERS, *COUNTERS_BY_REASON)}
    wanted |= {f"vllm:{name}": "histogram" for name in HISTOGRAMS}
    wanted |= {f"inferway_engine_{name}": kind for name, kind in OURS.items()}
    without_samples = {"vllm:request_success", "vllm:admission_rejections", "inferway_engine_refusals", "inferway_engine_attempts"}
    for shown in scrapes:
        assert {name: shown[name].type for name in wanted if name in shown} == wanted
        for name in wanted.keys() - without_samples:
            assert {sample.labels["model_name"] for sample in shown[name].samples} == {NAME}
    unknown = {name for name in scrapes[1] if name.startswith(("vllm:", "inferway_engine_"))} - set(wanted)
    assert {name for name in unknown if not name.endswith("_created")} == set(), "a name that no test and no table of the documentation has"


async def test_scrape_after_an_answer_and_a_refusal_counts_both(scrapes: tuple[Scrape, Scrape]) -> None:
    before, after = scrapes
    for name in HISTOGRAMS:
        assert value(before, f"vllm:{name}", f"vllm:{name}_count") == (1 if name == "iteration_tokens_total" else 0)  # The probe's step.
    for name in ("request_prompt_tokens", "request_generation_tokens", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert value(after, f"vllm:{name}", f"vllm:{name}_count") == 2
    assert value(after, "vllm:inter_token_latency_seconds", "vllm:inter_token_latency_seconds_count") == 8
    assert value(after, "vllm:request_prompt_tokens", "vllm:request_prompt_tokens_sum") == 6
    assert value(after, "vllm:request_generation_tokens", "vllm:request_generation_tokens_sum") == 10
    assert value(after, "vllm:generation_tokens", "vllm:generation_tokens_total") == 10
    assert value(after, "vllm:prefix_cache_hits", "vllm:prefix_cache_hits_total") == 2  # Of three tokens the last one is always computed.
    assert value(after, "vllm:prefix_cache_queries", "vllm:prefix_cache_queries_total") == 1 + 6  # The probe's, too.
    assert value(after, "inferway_engine_num_cached_blocks", "inferway_engine_num_cached_blocks") > 0
    assert value(after, "vllm:request_success", "vllm:request_success_total", finished_reason="length") == 2
    assert value(after, "vllm:admission_rejections", "vllm:admission_rejections_total", reason="INVALID_FIELD") == 1
    assert value(after, "vllm:cache_config_info", "vllm:cache_config_info", block_size="4", num_gpu_blocks="256") == 1
