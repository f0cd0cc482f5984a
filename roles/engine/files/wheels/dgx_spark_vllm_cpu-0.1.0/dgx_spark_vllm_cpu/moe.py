# SPDX-License-Identifier: BSD-2-Clause
"""Sigmoid routing in the CPU path of the fused mixture of experts, as Laguna needs it."""

from functools import wraps
from typing import Any


def register() -> None:
    """Let the CPU path route by sigmoid scores with a correction bias; everything else goes on as it was."""
    import torch
    from vllm.model_executor.layers.fused_moe import cpu_fused_moe as module

    original = module.select_experts
    if getattr(original, "_dgx_spark", False):
        return

    @wraps(original)
    def select_experts(
        hidden_states: Any,
        router_logits: Any,
        top_k: int,
        use_grouped_topk: bool,
        renormalize: bool,
        topk_group: int | None = None,
        num_expert_group: int | None = None,
        custom_routing_function: Any = None,
        scoring_func: str = "softmax",
        routed_scaling_factor: float = 1.0,
        e_score_correction_bias: Any = None,
    ) -> Any:
        if scoring_func != "sigmoid" or use_grouped_topk or custom_routing_function is not None:
            return original(
                hidden_states,
                router_logits,
                top_k,
                use_grouped_topk,
                renormalize,
                topk_group,
                num_expert_group,
                custom_routing_function,
                scoring_func,
                routed_scaling_factor,
                e_score_correction_bias,
            )
        scores = router_logits.float().sigmoid()
        biased = scores if e_score_correction_bias is None else scores + e_score_correction_bias
        ids = torch.topk(biased, k=top_k, dim=-1, sorted=False)[1]
        weights = scores.gather(-1, ids)
        if renormalize:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(torch.float32), ids.to(torch.int32)

    select_experts._dgx_spark = True
    module.select_experts = select_experts
