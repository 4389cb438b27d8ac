"""What the demo says at the end: a table for people, JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefix_router.demo.arguments import MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefix_router.demo.arguments import DemoPlan
    from prefix_router.demo.measure import Measurement
    from prefix_router.demo.processes import RunningRouter

PERCENTILES = (50, 90, 99)

_NAME_WIDTH = 24
_COLUMN_WIDTH = 14


def as_json(plan: DemoPlan, results: Mapping[str, Measurement]) -> dict[str, Any]:
    """The results by strategy, and what they were measured with. Times are simulated milliseconds."""
    workload = plan.workload
    return {
        "strategies": {
            strategy: {
                "hit_rate": round(result.hit_rate, 4),
                "ttft_ms": {f"p{percent}": round(result.percentile(percent), 1) for percent in PERCENTILES},
                "share": result.share,
                "reasons": result.reasons,
                "requests": len(result.ttft_ms),
            }
            for strategy, result in results.items()
        },
        "workload": {
            "prefixes": workload.prefixes,
            "uses": workload.uses,
            "prefix_tokens": workload.prefix_tokens,
            "question_tokens": workload.question_tokens,
            "output_tokens": workload.output_tokens,
            "requests_per_second": workload.requests_per_second,
            "ideal_hit_rate": workload.ideal_hit_rate,
            "seed": workload.seed,
        },
        "replicas": plan.replicas,
        "profile": plan.profile,
        "time_scale": plan.time_scale,
    }


def as_table(plan: DemoPlan, results: Mapping[str, Measurement]) -> str:
    """The results side by side, and what the last strategy gains over the first."""
    (_, base), *_, (_, best) = results.items()
    rows = [_row("", [*results, "gain"])]
    rates = [f"{result.hit_rate:.1%}" for result in results.values()]
    rows.append(_row("KV cache hit rate", [*rates, _times(best.hit_rate, base.hit_rate)]))
    for percent in PERCENTILES:
        times = [f"{result.percentile(percent):.0f} ms" for result in results.values()]
        change = best.percentile(percent) / base.percentile(percent) - 1
        rows.append(_row(f"time to first token P{percent}", [*times, f"{change:+.0%}"]))
    backends = set[str]().union(*(result.share for result in results.values()))
    for backend in sorted(backends, key=lambda name: (len(name), name)):
        shares = [f"{result.share.get(backend, 0.0):.1%}" for result in results.values()]
        rows.append(_row(f"requests to {backend}", shares))
    return "\n".join([_headline(plan), "", *rows])


def invitation(router: RunningRouter) -> str:
    """What one can try while the demo stays up."""
    body = f'{{"model": "{MODEL}", "max_tokens": 8, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return f"""
The router and its replicas stay up, with a little traffic, until Ctrl-C.

Which replica answers, and why? See x-prefix-router-backend and x-prefix-router-reason:
  curl -i {router.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'

The fleet, its in-flight counts and shares, requests by reason:
  curl {router.admin_url}/status
"""


def _headline(plan: DemoPlan) -> str:
    workload = plan.workload
    return (
        f"{plan.replicas} replicas of {plan.profile}, simulated {plan.time_scale:g} times as fast.\n"
        f"{workload.requests} requests, {workload.requests_per_second:g} a second: "
        f"{workload.prefixes} documents of {workload.prefix_tokens:,} tokens, "
        f"each asked about {workload.uses} times.\n"
        f"At best {workload.ideal_hit_rate:.1%} of the prompt tokens can hit. All times are simulated."
    )


def _row(name: str, cells: list[str]) -> str:
    return (f"{name:<{_NAME_WIDTH}}" + "".join(f"{cell:>{_COLUMN_WIDTH}}" for cell in cells)).rstrip()


def _times(value: float, base: float) -> str:
    return f"{value / base:.1f} x" if base else "-"
