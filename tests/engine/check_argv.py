#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Argument lists through vLLM's own parser and SpeculativeConfig; runs under the engine's Python on a node.

usage: check_argv.py < lists.json      ({"name": ["MODEL", "--flag", ...], ...}, as `card_info` renders them)
Prints one JSON object as the last line: for each name "ok", "errors", and the deepest "level" that was reached:
parser        the command line was parsed and its values were validated
speculative   beside that, the speculative config has known keys with values of the right types
engine        beside that, the whole engine config was made, which needs the model on this node
A list whose name begins with "refused" has to have errors. Exits with 1 where one is not as it has to be.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from pydantic import ValidationError
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.usage.usage_lib import UsageContext

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

ParserError = (ValueError, TypeError, ValidationError)


def parsed(argv: list[str]) -> Any:
    """What `vllm serve` makes of its arguments. Raises ValueError with the parser's message."""
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            args = parser.parse_args(argv)
            if getattr(args, "model_tag", None):
                args.model = args.model_tag
            validate_parsed_serve_args(args)
    except SystemExit as err:
        raise ValueError(told.getvalue().strip().splitlines()[-1] if told.getvalue().strip() else str(err)) from err
    return args


def speculative(config: dict[str, Any]) -> None:
    """Keys and types of a speculative config, without the models that its later steps read."""
    # The class is a dataclass of pydantic: its own later steps load the draft.
    later = SpeculativeConfig.__post_init__
    SpeculativeConfig.__post_init__ = lambda self: None  # type: ignore[method-assign]
    try:
        SpeculativeConfig(**config)
    finally:
        SpeculativeConfig.__post_init__ = later  # type: ignore[method-assign]


def verdict(argv: list[str]) -> dict[str, Any]:
    """How far one list gets."""
    level = "none"
    try:
        args = parsed(argv)
        engine = AsyncEngineArgs.from_cli_args(args)
        level = "parser"
        # What was given has to have arrived.
        for flag, value in (
            ("--max-model-len", engine.max_model_len),
            ("--kv-cache-memory-bytes", engine.kv_cache_memory_bytes),
        ):
            if flag in argv and str(value) != argv[argv.index(flag) + 1]:
                raise ValueError(f"{flag} arrived as {value}")
        config = engine.speculative_config
        if config is not None:
            speculative(dict(config))
            level = "speculative"
        models = [argv[0], (config or {}).get("model", argv[0])]
        if all((Path(model) / "config.json").is_file() for model in models):
            engine.create_engine_config(UsageContext.OPENAI_API_SERVER)
            level = "engine"
    except ParserError as err:
        return {"ok": False, "level": level, "errors": [str(err)[-600:]]}
    return {"ok": True, "level": level, "errors": []}


def main() -> int:
    """Judge every list on standard input."""
    lists = json.load(sys.stdin)
    verdicts = {name: verdict(argv) for name, argv in lists.items()}
    for name, found in verdicts.items():
        if name.startswith("refused"):
            found["ok"] = bool(found["errors"])
    print(json.dumps(verdicts))
    return 0 if all(found["ok"] for found in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
