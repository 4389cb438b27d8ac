"""langchain-openai against the router: prints what a chat model and embeddings gave. Arguments: URL, key."""

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

URL, KEY = sys.argv[1:3]
DOCUMENT = "A document for langchain, long enough for several blocks of the cache. " * 100


class Person(BaseModel):
    name: str
    age: int


def weather(city: str) -> str:
    """How the weather is."""
    return f"rain in {city}"


model = ChatOpenAI(
    model="simulated-model",
    base_url=f"{URL}/v1",
    api_key=KEY,
    max_retries=0,
    max_tokens=40,
    stream_usage=True,
    include_response_headers=True,
)


def ask(text: str) -> list[tuple[str, str]]:
    return [("system", DOCUMENT), ("human", text)]


def same_prefix() -> list[str]:
    answers = [model.invoke(ask(f"Question {number}?")) for number in range(4)]
    return [answer.response_metadata["headers"]["x-prefix-router-backend"] for answer in answers]


def stream() -> dict[str, Any]:
    whole: Any = None
    for chunk in model.stream(ask("Stream?")):
        whole = chunk if whole is None else whole + chunk
    return {
        "same_text": whole.content == model.invoke(ask("Stream?")).content,
        "output_tokens": whole.usage_metadata["output_tokens"],
    }


def structured() -> dict[str, list[Any]]:
    """Each way that langchain knows: by the form of the answer, and by the call of a tool."""
    found = {}
    for method in ("json_schema", "function_calling"):
        person: Any = model.with_structured_output(Person, method=method).invoke(ask("Who?"))
        found[method] = [type(person).__name__, type(person.name).__name__, type(person.age).__name__]
    return found


embeddings = OpenAIEmbeddings(
    model="simulated-embedder",
    base_url=f"{URL}/v1",
    api_key=KEY,
    check_embedding_ctx_length=False,  # Else it sends tokens of OpenAI's models in place of text.
)
parts = {
    "same_prefix": same_prefix(),
    "stream": stream(),
    "structured": structured(),
    "tool_calls": [call["name"] for call in model.bind_tools([weather]).invoke(ask("Weather?")).tool_calls],
    "batch": len(
        [answer for answer in model.batch([ask(f"Number {n}") for n in range(8)]) if answer.content]
    ),
    "embeddings": [len(vector) for vector in embeddings.embed_documents(["one", "two"])],
}
print(json.dumps(parts))
