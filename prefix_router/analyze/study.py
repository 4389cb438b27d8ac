"""The whole analysis: read and count, simulate what was read, choose, judge.

One pass over the files; then one simulation for each contender and load, and one for each threshold. The
first load is the one that is recommended for.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefix_router.analyze.contenders import (
    BASELINE,
    CANDIDATE_THRESHOLDS,
    LOAD_ALONE,
    Contender,
    contenders,
)
from prefix_router.analyze.measured import Measured
from prefix_router.analyze.reading import InputError, Reading
from prefix_router.analyze.recommendation import (
    LengthChoice,
    ThresholdChoice,
    choose_length,
    choose_threshold,
)
from prefix_router.analyze.sharing import Sharing
from prefix_router.analyze.traffic import Traffic
from prefix_router.analyze.verdict import Expectation, Verdict, judge
from prefix_router.engine.cost import PROFILES
from prefix_router.fleetsim.capacity import ideal_work
from prefix_router.fleetsim.command.runs import Run, run_all
from prefix_router.fleetsim.command.scenario import Facts, Scenario
from prefix_router.fleetsim.plan import FleetPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefix_router.fleetsim.request import SimulatedRequest

Row = dict[str, Any]

LABEL = "your traffic"
DEFAULT_LOADS = (0.5, 0.8)

_READ_BETWEEN_REPORTS = 5000


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    files, path: see `Reading`. loads: shares of the fleet's capacity; None for the recorded rate, or
    DEFAULT_LOADS where no times were recorded. requests: that are simulated at most. output_tokens: of an
    answer whose length is not known. jobs: processes that simulate.
    """

    files: tuple[str, ...]
    path: str | None
    loads: tuple[float, ...] | None
    replicas: int
    profile: str
    requests: int
    output_tokens: int
    concurrency_threshold: int
    seed: int
    jobs: int

    def command(self) -> str:
        """The command that gives the same results again."""
        words = ["prefix-router", "analyze", *self.files]
        if self.path is not None:
            words += ["--path", self.path]
        if self.loads is not None:
            words += ["--load", ",".join(f"{load:g}" for load in self.loads)]
        for flag, value in (
            ("--replicas", self.replicas),
            ("--profile", self.profile),
            ("--concurrency-threshold", self.concurrency_threshold),
            ("--requests", self.requests),
            ("--output-tokens", self.output_tokens),
            ("--seed", self.seed),
        ):
            words += [flag, str(value)]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found.

    recorded_rate: requests a second, None where times were not recorded. loads: that were simulated, the
    one that the recommendation is for first. rows: of the simulator, for each load in turn all contenders.
    """

    question: Question
    reading: Reading
    sharing: Sharing
    measured: Measured
    traffic: Traffic
    facts: Facts
    recorded_rate: float | None
    loads: tuple[float, ...]
    rows: tuple[Row, ...]
    length: LengthChoice
    threshold: ThresholdChoice
    verdict: Verdict

    @property
    def baseline(self) -> Row:
        """The row of the baseline at the first load."""
        return self.rows[0]

    @property
    def recommended(self) -> Row:
        """The row of what is recommended for prefixes, at the first load."""
        return _labelled(self.threshold.rows[self.threshold.threshold], self.length.contender)

    @property
    def by_load_alone(self) -> bool:
        """Whether prefixes are not worth looking at: little is gained, and the load alone routes as well."""
        if self.verdict.expectation is not Expectation.LITTLE:
            return False
        alone = next(row for row in self.rows if row["strategy"] == LOAD_ALONE.label)
        times = alone["ttft_ms"]["p99"], self.recommended["ttft_ms"]["p99"]
        return None not in times and times[0] <= times[1]

    def reasons(self) -> list[str]:
        """Why to set what is recommended, a sentence or two for each setting."""
        if self.by_load_alone:
            return [
                "Looking at prefixes gains little here, and routing by load alone has no slower first tokens."
            ]
        return [f"prefix: {self.length.why}", f"concurrency_threshold: {self.threshold.why}"]


def read(
    question: Question, progress: Callable[[str, float], None]
) -> tuple[Reading, Sharing, Measured, Traffic]:
    """Read all files. Raises InputError, also when there is no request in them."""
    reading = Reading(question.files, question.path)
    sharing, measured = Sharing(), Measured()
    traffic = Traffic(question.requests, question.output_tokens)
    for request in reading.requests():
        sharing.add(request.names, request.tokens)
        measured.add(request)
        traffic.add(request)
        if sharing.requests % _READ_BETWEEN_REPORTS == 0:
            progress(f"{sharing.requests:,} requests read", 0.0)
    sharing.finish()
    if not sharing.requests:
        raise InputError(_nothing(reading))
    return reading, sharing, measured, traffic


def study(question: Question, progress: Callable[[str, float], None]) -> Analysis:
    """The analysis. Raises InputError, BrokenProcessPool. progress: is told what is being done, and how far
    it is.
    """
    progress("reading", 0.0)
    reading, sharing, measured, traffic = read(question, progress)
    requests = traffic.arranged(question.seed, reading.sample)
    facts = _facts(requests, question)
    rate = facts.natural_rate if traffic.recorded_times and facts.natural_rate else None
    loads = question.loads or (DEFAULT_LOADS if rate is None else (_rounded(rate / facts.capacity),))
    fleet = FleetPlan(
        strategy=BASELINE.strategy,
        replicas=question.replicas,
        profile=question.profile,
        concurrency_threshold=question.concurrency_threshold,
        seed=question.seed,
    )
    scenario = Scenario(facts, requests)
    field = contenders(max(request.prompt_tokens for request in requests))
    rows = _rows(
        scenario,
        [(contender, Run(contender.plan(fleet), load)) for load in loads for contender in field],
        question.jobs,
        lambda share: progress("comparing", share),
    )
    first = list(zip(field, rows, strict=False))
    length = choose_length(first, question.replicas)
    threshold_rows = _rows(
        scenario,
        [
            (length.contender, Run(length.contender.plan(fleet, value), loads[0]))
            for value in CANDIDATE_THRESHOLDS
        ],
        question.jobs,
        lambda share: progress("looking for a threshold", share),
    )
    threshold = choose_threshold(dict(zip(CANDIDATE_THRESHOLDS, threshold_rows, strict=True)))
    recommended = _labelled(threshold.rows[threshold.threshold], length.contender)
    others = [row for contender, row in first if contender.strategy == "adaptive"]
    return Analysis(
        question=question,
        reading=reading,
        sharing=sharing,
        measured=measured,
        traffic=traffic,
        facts=facts,
        recorded_rate=rate,
        loads=loads,
        rows=tuple(rows),
        length=length,
        threshold=threshold,
        verdict=judge(sharing.recurring_share, len(requests), rows[0], recommended, others),
    )


def _rounded(load: float) -> float:
    """To three digits: a number that can be read, and times that are off by less than a hundredth."""
    return float(f"{load:.3g}")


def _facts(requests: Sequence[SimulatedRequest], question: Question) -> Facts:
    work = ideal_work(requests)
    span = requests[-1].arrival_seconds - requests[0].arrival_seconds
    return Facts(
        label=LABEL,
        requests=len(requests),
        mean_prompt_tokens=work.prompt_tokens / len(requests),
        mean_output_tokens=work.decoded_tokens / len(requests) + 1,
        ideal_hit_rate=work.hit_rate,
        capacity=work.capacity(PROFILES[question.profile], question.replicas),
        natural_rate=(len(requests) - 1) / span if span else 0.0,
    )


def _rows(
    scenario: Scenario,
    runs: Sequence[tuple[Contender, Run]],
    jobs: int,
    progress: Callable[[float], None],
) -> list[Row]:
    """Rows of the simulator, each under the label of its contender."""
    rows = run_all(scenario, [run for _, run in runs], jobs, progress)
    return [_labelled(row, contender) for (contender, _), row in zip(runs, rows, strict=True)]


def _labelled(row: Row, contender: Contender) -> Row:
    return {**row, "strategy": contender.label}


def _nothing(reading: Reading) -> str:
    if not reading.lines:
        return f"{', '.join(reading.files)}: there is nothing in it"
    causes = "; ".join(
        f"{cause} ({unusable.count}: {', '.join(unusable.first)})"
        for cause, unusable in reading.unusable.items()
    )
    return f"none of {reading.lines:,} lines is a request to analyze: {causes}"
