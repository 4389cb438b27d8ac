"""The routes of a stand-in vLLM that generate text: JSON in, engine requests, JSON or events out.

Each does the same: read the body into an `Ask`, hand it to the engine, and give the answer in the words of
its API while it comes. On every way out, a client that hangs up included, what is left of the request is
withdrawn from the engine at once. For that the server must cancel a handler whose client has gone
(`handler_cancellation`), or a request without a stream would run to its end for nobody.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from prefix_router.engine.request import RequestStatus
from prefix_router.simulate import asks, prompts
from prefix_router.simulate.errors import NotFoundError, QueueFullError
from prefix_router.simulate.jobs import Job, plan
from prefix_router.simulate.reply import ReplyHead
from prefix_router.simulate.reply_chat import ChatReply
from prefix_router.simulate.reply_completion import CompletionReply
from prefix_router.simulate.reply_messages import MessagesReply
from prefix_router.simulate.reply_responses import ResponsesReply
from prefix_router.simulate.wire import json_response

if TYPE_CHECKING:
    from prefix_router.simulate.asks import Ask
    from prefix_router.simulate.driver import EngineDriver, Generation
    from prefix_router.simulate.reply import Reply
    from prefix_router.simulate.settings import StandInSettings

STORED_RESPONSES = 256
"""How many responses can be continued or fetched; the oldest are forgotten."""


class _StoredResponse(NamedTuple):
    conversation: bytes
    job: Job
    reply: ResponsesReply


class GenerationApi:
    """The generating routes, on top of one `driver`.

    finished: requests that ended, by vLLM's finish reasons; an aborted one counts as "abort".
    """

    def __init__(self, driver: EngineDriver, settings: StandInSettings) -> None:
        self.finished = Counter({"stop": 0, "length": 0, "abort": 0})
        self._driver = driver
        self._settings = settings
        self._auto_tools = settings.enable_auto_tool_choice
        self._responses: OrderedDict[str, _StoredResponse] = OrderedDict()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the routes at vLLM's paths."""
        router.add_post("/v1/chat/completions", self._chat)
        router.add_post("/v1/completions", self._completion)
        router.add_post("/v1/messages", self._message)
        router.add_post("/v1/responses", self._respond)
        router.add_get("/v1/responses/{id}", self._show_response)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = asks.read_chat(asks.decode_body(await request.read()), auto_tools=self._auto_tools)
        return await self._generate(request, ask, self._plan(ask), ChatReply(self._head(ask)))

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        ask = asks.read_completion(asks.decode_body(await request.read()))
        return await self._generate(request, ask, self._plan(ask), CompletionReply(self._head(ask)))

    async def _message(self, request: web.Request) -> web.StreamResponse:
        ask = asks.read_messages(asks.decode_body(await request.read()), auto_tools=self._auto_tools)
        return await self._generate(request, ask, self._plan(ask), MessagesReply(self._head(ask)))

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body = asks.decode_body(await request.read())
        previous_id = body.get("previous_response_id")
        earlier = b"" if previous_id is None else self._find_response(str(previous_id)).conversation
        conversation = earlier + asks.render_conversation(body)
        ask = asks.read_responses(body, conversation, auto_tools=self._auto_tools)
        job = self._plan(ask)
        reply = ResponsesReply(self._head(ask), previous_id, body.get("instructions"))
        if body.get("store") is not False:
            # Kept from the start: a client may continue as soon as it has seen the last event.
            answered = conversation + prompts.render_answer(job.outputs[0])
            self._responses[reply.response_id] = _StoredResponse(answered, job, reply)
            if len(self._responses) > STORED_RESPONSES:
                self._responses.popitem(last=False)
        return await self._generate(request, ask, job, reply)

    async def _show_response(self, request: web.Request) -> web.StreamResponse:
        stored = self._find_response(request.match_info["id"])
        if any(one.status is not RequestStatus.FINISHED for one in stored.job.requests):
            return json_response(stored.reply.unfinished())
        return json_response(stored.reply.whole(stored.job.answers(), stored.job.usage()))

    async def _generate(self, request: web.Request, ask: Ask, job: Job, reply: Reply) -> web.StreamResponse:
        limit = self._settings.max_num_queued_reqs
        if limit is not None and self._driver.in_flight + len(job.requests) > limit:
            raise QueueFullError(f"the queue is full: at most {limit} requests may be in flight")
        generation = self._driver.submit(job.requests)
        try:
            if ask.stream:
                return await self._stream(request, job, generation, reply)
            await generation.complete()
            return json_response(reply.whole(job.answers(), job.usage()))
        finally:
            self._driver.withdraw(generation)
            for one in job.requests:
                done = one.status is RequestStatus.FINISHED
                self.finished[job.finish_reason if done else "abort"] += 1

    async def _stream(
        self, request: web.Request, job: Job, generation: Generation, reply: Reply
    ) -> web.StreamResponse:
        """Send events as tokens come. The head goes first: like vLLM's, it does not wait for a token."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        sent = [0] * len(job.requests)
        opened = False
        while not generation.finished:
            await generation.progress()
            events = [] if opened else [reply.opening(job.usage())]
            opened = True
            for index, one in enumerate(job.requests):
                start, end = sent[index], one.generated_tokens
                if end > start:
                    last = job.finish_reason if end == one.output_tokens else None
                    events.append(reply.delta(index, job.text(index, start, end), last))
                    sent[index] = end
            await response.write(b"".join(events))
        await response.write(reply.closing(job.answers(), job.usage()))
        await response.write_eof()
        return response

    def _plan(self, ask: Ask) -> Job:
        return plan(ask, self._served(ask), self._settings)

    def _head(self, ask: Ask) -> ReplyHead:
        return ReplyHead(
            request_id=uuid.uuid4().hex,
            created=int(time.time()),
            model=self._served(ask),
            answers=len(ask.prompts) * ask.answers,
            include_usage=ask.include_usage,
            call=ask.form.call,
        )

    def _served(self, ask: Ask) -> str:
        if ask.model is None:
            return self._settings.models[0]
        if ask.model not in self._settings.models:
            raise NotFoundError(f"The model `{ask.model}` does not exist.", "model")
        return ask.model

    def _find_response(self, response_id: str) -> _StoredResponse:
        stored = self._responses.get(response_id)
        if stored is None:
            raise NotFoundError(f"Response with id '{response_id}' not found.", "response_id")
        return stored
