"""The anthropic library with the header that its 0.x versions log in with. Prints how it went.

Arguments: URL, key. Version 2 sends the same key as a bearer token.
"""

import json
import sys
from typing import Any

import anthropic

URL, KEY = sys.argv[1:3]
asked: dict[str, Any] = {"model": "simulated-model", "max_tokens": 2}
try:
    client = anthropic.Anthropic(base_url=URL, default_headers={"X-Api-Key": KEY}, max_retries=0)
    client.messages.create(**asked, messages=[{"role": "user", "content": "hello"}])
    outcome = "answered"
except anthropic.APIStatusError as error:
    outcome = type(error).__name__
print(json.dumps(outcome))
