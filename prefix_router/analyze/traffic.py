"""The part of the traffic that is simulated: the first requests, made into those of the simulator.

The first ones and not a sample, because it matters how close together those are that share something.
Bounded by a number of requests and of blocks. What was not recorded is assumed and said: an answer is as
long as it was, or `output_tokens`, or what the request allowed where that is less; without times, requests
come independently.

A conversation is named after its first prompt: the simulator uses that name to tell keys apart that end
within a block, as a router does by the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.workloads.draw import poisson

if TYPE_CHECKING:
    from prefix_router.analyze.record import RecordedRequest

MOST_BLOCKS = 1 << 22
"""Of all requests that are simulated: 67 million tokens, and about 200 MB when they share nothing."""


@dataclass(slots=True)
class Traffic:
    """Collects.

    most_requests: that are simulated. output_tokens: of an answer whose length is not known. left_out:
    requests beyond the first. counted_outputs: answers whose length was recorded; limited_outputs: of the
    others, those that the request's own limit made shorter. timed: requests with a time.
    """

    most_requests: int
    output_tokens: int
    requests: list[SimulatedRequest] = field(default_factory=list)
    left_out: int = 0
    counted_outputs: int = 0
    limited_outputs: int = 0
    timed: int = 0
    _blocks: int = 0
    _ids: dict[int, int] = field(default_factory=dict)

    @property
    def recorded_times(self) -> bool:
        """Whether the recorded times can be used: all requests have one, and they are not all the same."""
        times = {request.arrival_seconds for request in self.requests}
        return self.timed == len(self.requests) and len(times) > 1

    def add(self, request: RecordedRequest) -> None:
        """Take a request, or count it as left out."""
        if len(self.requests) >= self.most_requests or self._blocks >= MOST_BLOCKS:
            self.left_out += 1
            return
        self._blocks += len(request.names)
        # Equal ids as one object: a number of its own costs four times its place in a list.
        ids = self._ids
        self.timed += request.seconds is not None
        self.requests.append(
            SimulatedRequest(
                arrival_seconds=request.seconds or 0.0,
                blocks=tuple(ids.setdefault(name, name) for name in request.names),
                prompt_tokens=request.tokens,
                output_tokens=self._output(request),
                session=f"{request.first_end.name:x}",
                user_turn_tokens=request.first_end.tokens,
            )
        )

    def arranged(self, seed: int, sample: float = 1.0) -> list[SimulatedRequest]:
        """The requests in order of arrival, from 0: by their times, or by chance at one a second.

        sample: the part of the traffic that was recorded; times are squeezed, so that the rate is that of
        all.
        """
        self._ids.clear()
        if not self.recorded_times:
            times = poisson(Random(f"analyze {seed}"))
            return [request._replace(arrival_seconds=next(times)) for request in self.requests]
        made = sorted(self.requests, key=lambda request: request.arrival_seconds)
        start = made[0].arrival_seconds
        return [
            request._replace(arrival_seconds=(request.arrival_seconds - start) * sample) for request in made
        ]

    def _output(self, request: RecordedRequest) -> int:
        if request.output_tokens is not None:
            self.counted_outputs += 1
            return request.output_tokens
        most = request.most_output_tokens
        if most is not None and most < self.output_tokens:
            self.limited_outputs += 1
            return most
        return self.output_tokens
