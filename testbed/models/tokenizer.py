# SPDX-License-Identifier: GPL-3.0-or-later
"""A tokenizer of single bytes with four special tokens, in the files that transformers reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.models.formats import write_json

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
MASK = "<mask>"
# The last character before the answer is the question that the chain answers.
CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def byte_alphabet() -> list[str]:
    """The printable stand-ins for the 256 bytes, sorted, as byte-level BPE has always drawn them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = range(0x100, 0x100 + 256 - len(plain))
    return sorted(chr(c) for c in [*plain, *shifted])


def special_ids() -> dict[str, int]:
    return {token: 256 + i for i, token in enumerate([*SPECIAL.values(), MASK])}


def write_tokenizer(folder: Path, max_length: int) -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in special_ids().items()
    ]
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: i for i, character in enumerate(byte_alphabet())},
            "merges": [],
        },
    }
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **SPECIAL,
            "additional_special_tokens": [MASK],
            "clean_up_tokenization_spaces": False,
            "model_max_length": max_length,
        },
    )
    write_json(folder / "special_tokens_map.json", {**SPECIAL, "additional_special_tokens": [MASK]})
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
