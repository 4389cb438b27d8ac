"""One vLLM engine: continuous batching over a block cache, a step at a time, without a clock.

The rules, which are vLLM's with its defaults:

- A step has one token budget. A sequence that decodes takes one token of it, a prompt as much as is left:
  a long prompt is computed in chunks over several steps.
- Running requests come before waiting ones; both are served in the order of admission. A waiting request
  is admitted when a sequence is free, budget is left and its whole prompt fits the free blocks. The first
  that does not fit stops admission: nobody overtakes.
- A prompt's longest cached beginning is not computed again: full blocks only, and never the last token,
  which is needed for its logits.
- A prompt's blocks can be reused as soon as their computation is scheduled, by the next in line in the very
  same step: each layer writes the KV of all its tokens before any of them attends. Blocks that answers fill
  can be reused from the step after.
- When a running request needs a block and none is free, the newest running request loses its blocks and
  goes to the head of the queue. Its output stays: prompt and output are computed again, mostly from its own
  blocks if they are still there. It cannot come back in the same step: somebody has taken one of them.

Decoding sequences always get their token and whatever budget is left goes to the front of the line, so
between two steps at most one prompt is half computed, and it is the newest. That is why running requests
are two lists, decoding then prefilling, which together are the order of admission.

A step is two calls, because things happen while a GPU works: `start_step` schedules and says how long it
takes; requests may come and go; `finish_step` says what came out. `step` is both at once. Cost: a few
microseconds, plus some 60 ns for each decoding sequence, plus under 1 µs for each block that changes hands.

The engine never sleeps, logs or draws a random number; time is what the caller makes of the durations.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from prefix_router.engine.block_cache import BlockCache
from prefix_router.engine.cost import attention_pairs
from prefix_router.engine.counters import EngineCounters
from prefix_router.engine.limits import EngineLimits
from prefix_router.engine.request import RequestStatus
from prefix_router.engine.step import StepResult

if TYPE_CHECKING:
    from prefix_router.engine.cost import CostProfile
    from prefix_router.engine.request import EngineRequest


class Engine:
    """One engine. `kv_tokens` overrides the size of the profile's KV cache."""

    def __init__(
        self, profile: CostProfile, limits: EngineLimits | None = None, kv_tokens: int | None = None
    ) -> None:
        self.profile = profile
        self.limits = limits or EngineLimits()
        self.counters = EngineCounters()
        tokens = profile.kv_tokens if kv_tokens is None else kv_tokens
        self._block_size = self.limits.block_size
        self._cache = BlockCache(tokens // self._block_size)
        self._waiting: deque[EngineRequest] = deque()
        self._decoding: list[EngineRequest] = []
        self._prefilling: list[EngineRequest] = []
        self._full: list[EngineRequest] = []
        """Decoding requests whose blocks are full: the next token needs a new one."""
        self._decoding_tokens = 0
        """Total tokens that the decoding requests attend to."""
        self._step_seconds: float | None = None

    @property
    def running(self) -> int:
        """Requests that hold blocks."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests that are queued, preempted ones included."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._decoding or self._prefilling)

    @property
    def total_blocks(self) -> int:
        """The size of the KV cache in blocks."""
        return self._cache.total_blocks

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that running requests hold, 0.0 to 1.0; cached but free blocks are free."""
        return 1 - self._cache.free_blocks / self._cache.total_blocks

    def add(self, request: EngineRequest) -> None:
        """Queue a request; it is considered from the next `start_step` on.

        Raises ValueError when the request could never fit the KV cache, however idle the engine.
        """
        blocks = -(-(request.prompt_tokens + request.output_tokens) // self._block_size)
        if blocks > self._cache.total_blocks:
            raise ValueError(
                f"the request needs {blocks} KV blocks, the cache has {self._cache.total_blocks}"
            )
        self._waiting.append(request)

    def abort(self, request: EngineRequest) -> bool:
        """Drop a request at once, in whatever state; False when it has already ended.

        O(requests). What it computed stays reusable as far as it got.
        """
        if request.status is RequestStatus.WAITING:
            self._waiting.remove(request)
        elif request.status is RequestStatus.RUNNING:
            if request in self._prefilling:
                self._prefilling.remove(request)
            else:
                self._decoding.remove(request)
                self._decoding_tokens -= request.total_tokens
            self._cache.release(request.blocks)
            request.blocks.clear()
        else:
            return False
        request.status = RequestStatus.ABORTED
        self.counters.aborted_requests += 1
        return True

    def reset_prefix_cache(self) -> bool:
        """Forget what is cached; False, and nothing changes, while a request is running."""
        return self._cache.reset()

    def step(self) -> StepResult | None:
        """Do one whole step; None when there is nothing to do."""
        return self.finish_step() if self.start_step() is not None else None

    def start_step(self) -> float | None:
        """Schedule one step and return its duration in simulated seconds; None when there is nothing to do.

        Raises RuntimeError when a step is in progress.
        """
        if self._step_seconds is not None:
            raise RuntimeError("a step is in progress")
        if not self.has_work:
            return None
        self._extend_decoding()
        budget = self.limits.step_token_budget - len(self._decoding)
        budget -= self._continue_prefill(budget)
        self._admit(budget)
        tokens = 0
        pairs = 0.0
        for request in self._prefilling:
            tokens += request.chunk_tokens
            pairs += attention_pairs(request.chunk_tokens, request.computed_tokens)
        self._step_seconds = self.profile.step_seconds(
            tokens, pairs, len(self._decoding), self._decoding_tokens
        )
        return self._step_seconds

    def finish_step(self) -> StepResult:
        """End the step in progress and say what it produced. Raises RuntimeError when there is none."""
        if self._step_seconds is None:
            raise RuntimeError("no step is in progress")
        advanced = self._decoding.copy()
        first_tokens: list[EngineRequest] = []
        finished: list[EngineRequest] = []
        self._advance_decoding(finished)
        if self._prefilling:
            self._advance_prefilling(advanced, first_tokens, finished)
        counters = self.counters
        counters.steps += 1
        counters.generated_tokens += len(advanced)
        counters.finished_requests += len(finished)
        result = StepResult(self._step_seconds, advanced, first_tokens, finished)
        self._step_seconds = None
        return result

    def _extend_decoding(self) -> None:
        """Give a block to each decoding request that has filled its last one."""
        if not self._full:
            return
        for request in self._full:
            while request.status is RequestStatus.RUNNING and not self._cache.free_blocks:
                self._preempt_newest()
            if request.status is RequestStatus.RUNNING:
                request.blocks += self._cache.allocate(1)
                self._set_next_stop(request)
        self._full.clear()

    def _continue_prefill(self, budget: int) -> int:
        """Schedule the next chunk of the prompt that is half computed, if any; return its tokens."""
        if not self._prefilling:
            return 0
        request = self._prefilling[0]
        request.chunk_tokens = min(request.total_tokens - request.computed_tokens, budget)
        missing = self._blocks_for(request.computed_tokens + request.chunk_tokens) - len(request.blocks)
        if missing > self._cache.free_blocks:
            # It is itself the newest, and its blocks are all that could be freed.
            self._preempt_newest()
            return 0
        self._schedule(request, missing)
        return request.chunk_tokens

    def _admit(self, budget: int) -> None:
        """Admit waiting requests while there are budget, sequences and blocks."""
        cache = self._cache
        while self._waiting and budget > 0 and self.running < self.limits.max_sequences and cache.free_blocks:
            request = self._waiting[0]
            total = request.total_tokens
            hits = cache.lookup(request.block_hashes, (total - 1) // self._block_size)
            if self._blocks_for(total) - len(hits) + cache.count_free(hits) > cache.free_blocks:
                return
            self._waiting.popleft()
            cache.acquire(hits)
            request.status = RequestStatus.RUNNING
            request.blocks = hits
            request.published_blocks = len(hits)
            request.computed_tokens = len(hits) * self._block_size
            request.chunk_tokens = min(total - request.computed_tokens, budget)
            if not request.preemptions:
                request.cached_tokens = request.computed_tokens
                self.counters.prefix_cache_query_tokens += total
                self.counters.prefix_cache_hit_tokens += request.cached_tokens
            self._prefilling.append(request)
            self._schedule(
                request, self._blocks_for(request.computed_tokens + request.chunk_tokens) - len(hits)
            )
            budget -= request.chunk_tokens

    def _schedule(self, request: EngineRequest, missing_blocks: int) -> None:
        """Allocate what the chunk of `request` needs, and name the blocks that it will fill."""
        request.blocks += self._cache.allocate(missing_blocks)
        self._publish(request, request.computed_tokens + request.chunk_tokens)

    def _advance_decoding(self, finished: list[EngineRequest]) -> None:
        stopped = []
        for request in self._decoding:
            generated = request.generated_tokens + 1
            request.generated_tokens = generated
            if generated >= request.next_stop:
                stopped.append(request)
        self._decoding_tokens += len(self._decoding)
        leaving = len(finished)
        for request in stopped:
            # The last token generated is not in the cache yet: its KV comes with the next step.
            self._publish(request, request.total_tokens - 1)
            if request.generated_tokens == request.output_tokens:
                self._decoding_tokens -= request.total_tokens
                self._finish(request, finished)
            else:
                self._full.append(request)
        if len(finished) > leaving:
            running = RequestStatus.RUNNING
            self._decoding = [request for request in self._decoding if request.status is running]

    def _advance_prefilling(
        self,
        advanced: list[EngineRequest],
        first_tokens: list[EngineRequest],
        finished: list[EngineRequest],
    ) -> None:
        unfinished = []
        for request in self._prefilling:
            request.computed_tokens += request.chunk_tokens
            request.chunk_tokens = 0
            if request.computed_tokens < request.total_tokens:
                unfinished.append(request)
                continue
            if not request.generated_tokens:
                first_tokens.append(request)
                self.counters.prompt_tokens += request.prompt_tokens
            request.generated_tokens += 1
            advanced.append(request)
            if request.generated_tokens == request.output_tokens:
                self._finish(request, finished)
                continue
            self._decoding.append(request)
            self._decoding_tokens += request.total_tokens
            if len(request.blocks) * self._block_size < request.total_tokens:
                self._full.append(request)
            else:
                self._set_next_stop(request)
        self._prefilling = unfinished

    def _set_next_stop(self, request: EngineRequest) -> None:
        """A decoding request needs attention when it is done or its blocks are full.

        With g tokens generated, prompt + g - 1 are in the blocks: they are full at g = slots - prompt + 1.
        """
        slots = len(request.blocks) * self._block_size
        request.next_stop = min(request.output_tokens, slots - request.prompt_tokens + 1)

    def _publish(self, request: EngineRequest, computed_tokens: int) -> None:
        """Name the blocks of `request` that are full once that many tokens are computed."""
        start = request.published_blocks
        end = min(computed_tokens // self._block_size, len(request.block_hashes))
        if end > start:
            self._cache.publish(request.blocks[start:end], request.block_hashes[start:end])
            request.published_blocks = end

    def _finish(self, request: EngineRequest, finished: list[EngineRequest]) -> None:
        request.status = RequestStatus.FINISHED
        self._cache.release(request.blocks)
        request.blocks.clear()
        finished.append(request)

    def _preempt_newest(self) -> None:
        """Take the blocks of the newest running request and put it at the head of the queue."""
        if self._prefilling:
            request = self._prefilling.pop()
        else:
            request = self._decoding.pop()
            self._decoding_tokens -= request.total_tokens
        self._cache.release(request.blocks)
        request.blocks.clear()
        request.published_blocks = request.computed_tokens = request.chunk_tokens = 0
        request.preemptions += 1
        request.status = RequestStatus.WAITING
        self._waiting.appendleft(request)
        self.counters.preemptions += 1

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
