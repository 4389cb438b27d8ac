"""The openai library against the router: prints what each part of its API gave. Arguments: URL, key."""

import asyncio
import json
import sys
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

URL, KEY = sys.argv[1:3]
MODEL = "simulated-model"
DOCUMENT = "A document for openai, long enough for several blocks of the cache. " * 100
TOOL = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

client = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Person(BaseModel):
    name: str
    age: int


def ask(text: str) -> Any:
    return [{"role": "system", "content": DOCUMENT}, {"role": "user", "content": text}]


def same_prefix() -> dict[str, Any]:
    backends, cached = [], []
    for number in range(4):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=ask(f"Question {number}?"), max_tokens=5
        )
        usage = raw.parse().usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        backends.append(raw.headers["x-prefix-router-backend"])
        cached.append(usage.prompt_tokens_details.cached_tokens)
    return {"backends": backends, "cached": cached}


def stream() -> dict[str, Any]:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=ask("Stream?"),
            max_tokens=7,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    usage = chunks[-1].usage
    assert usage is not None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = client.chat.completions.create(model=MODEL, messages=ask("Stream?"), max_tokens=7)
    return {
        "same_text": text == whole.choices[0].message.content,
        "completion_tokens": usage.completion_tokens,
    }


async def asynchronous() -> int:
    async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0) as several:
        answers = await asyncio.gather(
            *(
                several.chat.completions.create(model=MODEL, messages=ask(f"Number {n}"), max_tokens=3)
                for n in range(20)
            )
        )
        streamed = await several.completions.create(model=MODEL, prompt="once", max_tokens=3, stream=True)
        texts = [chunk.choices[0].text async for chunk in streamed if chunk.choices]
    return len([a for a in answers if a.choices[0].message.content]) + bool("".join(texts))


def tools() -> dict[str, Any]:
    """A round trip: the model calls, the client answers the call, the model answers in words."""
    offered: Any = [{"type": "function", "function": TOOL}]
    messages = ask("How is the weather?")
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=offered).choices[0]
    [call] = first.message.tool_calls or []
    assert call.type == "function"
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    said: Any = first.message.model_dump(exclude_none=True)
    second = client.chat.completions.create(
        model=MODEL, messages=[*messages, said, result], tools=offered, max_tokens=5
    ).choices[0]
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=offered) as streaming:
        [streamed] = streaming.get_final_completion().choices[0].message.tool_calls or []
    return {
        "finish_reasons": [first.finish_reason, second.finish_reason],
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "streamed_the_same": streamed.function.arguments == call.function.arguments,
        "answered": bool(second.message.content),
    }


def structured() -> dict[str, Any]:
    answer = client.chat.completions.parse(model=MODEL, messages=ask("Who?"), response_format=Person)
    person = answer.choices[0].message.parsed
    said = client.responses.parse(model=MODEL, input="Who?", text_format=Person).output_parsed
    assert person is not None
    assert said is not None
    return {"name": person.name, "age": person.age, "from_responses": said.name}


def responses() -> dict[str, Any]:
    first = client.responses.create(model=MODEL, input="Say something.", max_output_tokens=5)
    with client.responses.stream(model=MODEL, input="Say something.", max_output_tokens=5) as streaming:
        kinds = [event.type for event in streaming]
    return {"text": bool(first.output_text), "first": kinds[0], "last": kinds[-1]}


def embeddings() -> dict[str, Any]:
    raw = client.embeddings.with_raw_response.create(model="simulated-embedder", input=["one", "two"])
    lengths = [len(datum.embedding) for datum in raw.parse().data]
    return {"lengths": lengths, "backend": raw.headers["x-prefix-router-backend"]}


def errors() -> dict[str, Any]:
    """Which exception each refusal becomes, and who refused: an id of the request is always there."""
    stranger = OpenAI(base_url=f"{URL}/v1", api_key="wrong", max_retries=0)
    attempts: dict[str, Any] = {
        "unknown model": lambda: client.chat.completions.create(model="absent", messages=ask("?")),
        "bad request": lambda: client.chat.completions.create(model=MODEL, messages=[]),
        "too long": lambda: client.completions.create(model=MODEL, prompt="long " * 20_000),
        "wrong key": lambda: stranger.completions.create(model=MODEL, prompt="?"),
        "no such path": lambda: client.get("/absent", cast_to=object),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except openai.APIStatusError as error:
            found[name] = [type(error).__name__, bool(error.request_id)]
    return found


parts: dict[str, Any] = {
    "version": openai.__version__,
    "models": sorted(model.id for model in client.models.list()),
    "same_prefix": same_prefix(),
    "stream": stream(),
    "asynchronous": asyncio.run(asynchronous()),
    "tools": tools(),
    "structured": structured(),
    "responses": responses(),
    "embeddings": embeddings(),
    "errors": errors(),
}
print(json.dumps(parts))
