from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Encoding, Tokenizer, models, pre_tokenizers, trainers

from prefix_router.tokenization import MOST_CHARACTERS_PER_TOKEN, HeadTokenizer, TokenizerError

_SAMPLES = [
    *Path(json.__file__).parent.glob("*.py"),
    *Path(random.__file__).parent.glob("a*.py"),
]
CODE = "".join(path.read_text("utf-8") for path in sorted(_SAMPLES))
CHINESE = "推理服务把请求按前缀路由到同一个副本，缓存命中率因此提高。"
EMOJI = "👨‍👩‍👧‍👦🇩🇪é😀ü"


def train(split_at_blanks: bool) -> Tokenizer:
    """Train a byte-level BPE, which splits text into words first or merges across everything."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_at_blanks)
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    lines = [*CODE[:150_000].splitlines(keepends=True), CHINESE * 3, EMOJI * 3, " " * 64, "\n" * 16]
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


@pytest.fixture(scope="module", params=["splits at blanks", "merges across blanks"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(request.param == "splits at blanks").save(str(path))
    return path


def mixture(pieces: int) -> str:
    draw = random.Random(7)
    words = ["the ", "\n\n\n", " " * 9, "前缀", "😀", "def f(x):\n", "\t", "é", "abab", "0xFF", CHINESE]
    return "".join(draw.choice(words) for _ in range(pieces))


TEXTS = {
    "empty": "",
    "short": "Hello, 世界",
    "code": CODE,
    "one Chinese sentence after another": CHINESE * 300,
    "Chinese without any break": "".join(char for char in CHINESE if char not in "，。") * 300,
    "emoji": EMOJI * 700,
    "runs of blanks": (" " * 150 + "x") * 80,
    "one letter": "a" * 20_000,
    "two letters": "ab" * 10_000,
    "random letters without blanks": "".join(random.Random(3).choices("abcdeABCDE0123+/", k=20_000)),
    "a mixture": mixture(6000),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_head_is_what_encoding_everything_begins_with(file: Path, text: str) -> None:
    whole = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids
    tokenizer = HeadTokenizer(file)
    for limit in (1, 2, 7, 64, 65, 300, 1024, 50_000):
        assert tokenizer.head(text, limit) == tuple(whole[:limit])


def test_the_end_of_a_text_does_not_change_its_head(file: Path) -> None:
    tokenizer = HeadTokenizer(file)
    head = tokenizer.head(CODE, 200)
    assert tokenizer.head(CODE + "something else", 200) == head
    assert tokenizer.head(CODE[: len(CODE) // 2], 200) == head


class Counting:
    """A tokenizer that counts the characters that it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def encode(self, text: str, add_special_tokens: bool) -> Encoding:
        self.characters += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("text", [CODE, CHINESE, EMOJI, " "], ids=["code", "Chinese", "emoji", "blanks"])
def test_of_a_long_text_only_the_head_is_encoded(
    file: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 256
    tokenizer = HeadTokenizer(file)
    counting = Counting(Tokenizer.from_file(str(file)))
    monkeypatch.setattr(tokenizer, "_tokenizer", counting)
    million = text * (1_000_000 // len(text) + 1)
    assert len(tokenizer.head(million, limit)) <= limit
    assert limit <= counting.characters <= 2 * MOST_CHARACTERS_PER_TOKEN * limit


def test_the_extent_is_the_characters_that_the_tokens_cover(file: Path) -> None:
    tokenizer = HeadTokenizer(file)
    for text in ("Hello, world, and more of it", CODE, CHINESE * 100):
        extent = tokenizer.extent(text, 5)
        assert 0 < extent < len(text)
        assert tokenizer.head(text[:extent], 1000)[:4] == tokenizer.head(text, 4)
    assert tokenizer.extent("Hello", 1000) == 5
    assert tokenizer.extent("", 5) == 0


def test_special_tokens_truncation_and_padding_of_the_file_do_not_apply(file: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(file))
    text = "one two three four five six"
    plain = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.enable_truncation(max_length=3)
    tokenizer.enable_padding(length=100)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    bos = {"id": "<s>", "ids": [tokenizer.token_to_id("<s>")], "tokens": ["<s>"]}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": bos},
    }
    path = tmp_path / "special.json"
    path.write_text(json.dumps(document), "utf-8")
    assert len(Tokenizer.from_file(str(path)).encode(text).ids) != len(plain)
    assert HeadTokenizer(path).head(text, 1000) == plain


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"cannot read the tokenizer .*absent\.json"):
        HeadTokenizer(tmp_path / "absent.json")


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"model": {"type": "Unknown"}}'])
def test_a_file_that_is_no_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerError, match=r"cannot read the tokenizer .*tokenizer\.json"):
        HeadTokenizer(path)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r"install prefix_router\[tokenizer\]"):
        HeadTokenizer("tokenizer.json")
