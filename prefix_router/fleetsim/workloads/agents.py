"""Coding agents: a long preamble of tools, then many small steps, now and then with helpers of their own.

The defaults are what was measured in a public trace of 710 coding sessions (48,658 requests of the agents and
676 of their sub-agents): half of the preambles are above 14,900 tokens, half of the sessions have more than
45 requests, half of the steps append more than 280 tokens besides the last answer, half of the answers are
longer than 216 tokens, half of the pauses longer than 18 s. Three things were chosen instead: how many
preambles are in use (the trace, of many users over months, has 343), the share of sessions that start
sub-agents (there, 17 of 710) and the longest context (there, almost a third of the prompts are longer).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, ClassVar

from prefix_router.fleetsim.request import BLOCK_TOKENS, SimulatedRequest
from prefix_router.fleetsim.workloads.base import require_at_least, require_share
from prefix_router.fleetsim.workloads.conversations import Turn, interleave
from prefix_router.fleetsim.workloads.draw import LogNormal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from prefix_router.fleetsim.workloads.text import Text, TextSource

_STEPS = LogNormal(45, 1.1)
_PAUSE = LogNormal(18.0, 1.1)
_SUBAGENT_STEPS = LogNormal(11, 0.5)


@dataclass(frozen=True, slots=True)
class _Pace:
    """How an agent works.

    task: tokens of its first prompt behind the preamble. step: tokens that each step appends besides the last
    answer: the result of a tool, or what the user says. output: tokens of an answer. pause: seconds.
    """

    task: LogNormal
    step: LogNormal
    output: LogNormal
    pause: LogNormal


_AGENT_PACE = _Pace(LogNormal(7300, 1.2), LogNormal(280, 1.6), LogNormal(216, 1.1), _PAUSE)
_SUBAGENT_PACE = _Pace(LogNormal(1600, 0.8), LogNormal(2300, 1.1), LogNormal(235, 0.6), LogNormal(7.0, 0.7))


@dataclass(frozen=True, slots=True)
class AgentsWorkload:
    """Sessions of coding agents.

    preambles, preamble_tokens: how many versions of tools and system prompt are in use, and their length.
    subagent_preamble_tokens: the same of sub-agents, which have one version. subagent_share: of the sessions,
    those that start sub-agents; subagents: how many of them then work at the same time.
    context_tokens: a session that would exceed it goes on with the preamble and a summary.
    """

    name: ClassVar[str] = "agents"
    summary: ClassVar[str] = "coding agents with a 14,900-token preamble and many small steps"

    preambles: int = 8
    preamble_tokens: int = 14_900
    subagent_share: float = 0.2
    subagents: int = 3
    subagent_preamble_tokens: int = 8700
    context_tokens: int = 128_000

    def __post_init__(self) -> None:
        require_share("subagent_share", self.subagent_share)
        require_at_least(
            {
                "preambles": self.preambles,
                "preamble_tokens": self.preamble_tokens,
                "subagents": self.subagents,
                "subagent_preamble_tokens": self.subagent_preamble_tokens,
            }
        )
        if self.context_tokens < 2 * max(self.preamble_tokens, self.subagent_preamble_tokens):
            raise ValueError("context_tokens must be at least twice the preamble")

    def requests(self, count: int, random: Random, source: TextSource) -> list[SimulatedRequest]:
        """One agent for every 40 requests, so that most begin a second session at the most."""
        preambles = [source.new(self.preamble_tokens) for _ in range(self.preambles)]
        sub_preamble = source.new(self.subagent_preamble_tokens)

        def session() -> Iterator[Turn]:
            return self._session(random.choice(preambles), sub_preamble, random, source)

        return interleave(session, max(count // 40, 1), count, random, _PAUSE.mean)

    def _session(
        self, preamble: Text, sub_preamble: Text, random: Random, source: TextSource
    ) -> Iterator[Turn]:
        session = source.new_session()
        agent = _Agent(preamble, self.context_tokens, session, random, source)
        steps = _STEPS.tokens(random)
        work = [agent.work(_AGENT_PACE, steps)]
        if random.random() < self.subagent_share:
            start = random.uniform(0.0, steps * _PAUSE.mean)
            for _ in range(self.subagents):
                helper = _Agent(sub_preamble, self.context_tokens, session, random, source)
                work.append(helper.work(_SUBAGENT_PACE, _SUBAGENT_STEPS.tokens(random), start))
        return merge(*work, key=lambda turn: turn.request.arrival_seconds)


@dataclass(frozen=True, slots=True)
class _Agent:
    preamble: Text
    context_tokens: int
    session: str
    random: Random
    source: TextSource

    def work(self, pace: _Pace, steps: int, seconds: float = 0.0) -> Iterator[Turn]:
        """The turns of one task, beginning at `seconds` of the session."""
        room = self.context_tokens - self.preamble.tokens
        prompt = self._begin(pace.task, room)
        first_turn_tokens = prompt.tokens
        for _ in range(steps):
            output_tokens = pace.output.tokens(self.random, room)
            answered = self.source.after(prompt, output_tokens)
            request = SimulatedRequest(
                arrival_seconds=seconds,
                blocks=prompt.blocks,
                prompt_tokens=prompt.tokens,
                output_tokens=output_tokens,
                session=self.session,
                user_turn_tokens=first_turn_tokens,
                output_blocks=answered.blocks[prompt.tokens // BLOCK_TOKENS :],
            )
            wait = pace.pause.draw(self.random)
            yield Turn(request, wait)
            seconds += wait
            prompt = self.source.after(answered, pace.step.tokens(self.random))
            if prompt.tokens > self.context_tokens:
                prompt = self._begin(pace.task, room)
                first_turn_tokens = prompt.tokens

    def _begin(self, task: LogNormal, room: int) -> Text:
        return self.source.after(self.preamble, task.tokens(self.random, room))
