#!/usr/bin/env python3
# Copyright (c) 2026, dgx_spark.vllm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build a DFlash draft and load its weights with vLLM's own loader, without engine or kernels.

Runs under the engine's Python on a node.

usage: loader.py TARGET DRAFT [SOURCE]
SOURCE takes the place of vLLM's laguna_dflash.py for this run, so that its original can be tried as well.
The last line is a JSON object: {"loaded": number of parameters, "missing": [...]} or {"error": type, "message": text}.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")

import torch
from safetensors.torch import load_file
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.network_utils import get_open_port

MODULE = "vllm.model_executor.models.laguna_dflash"
DEPTH = 6


def replace_module(source: str) -> None:
    """Let Python load vLLM's module of the draft from another file."""
    spec = importlib.util.spec_from_file_location(MODULE, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)


def load(target: str, draft: str) -> dict[str, object]:
    """What vLLM's loader makes of the draft's weights."""
    speculative = {"method": "dflash", "model": draft, "num_speculative_tokens": DEPTH}
    config = EngineArgs(
        model=target,
        max_model_len=512,
        enforce_eager=True,
        max_num_seqs=2,
        max_num_batched_tokens=512,
        speculative_config=speculative,
    ).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"tcp://127.0.0.1:{get_open_port()}", 0, backend="gloo")
        initialize_model_parallel(1, 1)
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = initialize_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
            loaded = model.load_weights(iter(load_file(f"{draft}/model.safetensors").items()))
        except Exception as error:  # any failure of the loader is the answer
            return {"error": type(error).__name__, "message": str(error)}
        wanted = {name for name, _ in model.named_parameters()}
        return {"loaded": len(loaded), "missing": sorted(wanted - loaded)}


def main() -> None:
    """Try the draft and say what came of it."""
    if len(sys.argv) > 3:
        replace_module(sys.argv[3])
    print(json.dumps(load(sys.argv[1], sys.argv[2])), flush=True)
    # vLLM's process groups have no orderly end outside an engine.
    os._exit(0)


if __name__ == "__main__":
    main()
