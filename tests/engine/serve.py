"""Serves the tiny model once, in this process and its workers, and prints what came out as one line of JSON.

Run by the tests as a program, because an engine cannot be started twice in one process.
"""

import json
import os
import sys
from typing import Any

PROMPTS = [[3, 14, 15, 92, 65], [35, 89, 79, 32]]
TOKENS = 12


def sizes_of(model: Any) -> list[list[int]]:
    """Hidden and intermediate size of every expert layer, and the shapes that its weights have now."""
    found = []
    for name, module in model.named_modules():
        if name.endswith("routed_experts"):
            moe = module.moe_config
            shapes = [*module.w13_weight.shape, *module.w2_weight.shape]
            found.append([moe.hidden_dim, moe.intermediate_size_per_partition, *shapes])
    return found


def poison() -> None:
    """Fill all memory that torch leaves uninitialised with NaN from now on."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def without_fill() -> None:
    """Take the adapter's fill away: what the poison then does shows that it is there."""
    from moe_align.adapters.vllm import session

    vars(session)["fill_layer"] = lambda layer, sizes: 0


def watch_pads(seen: list[list[float]]) -> None:
    """Put into `seen`, each time a layer is repacked, the largest of its pad cells and of its live ones."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

    process = UnquantizedFusedMoEMethod.process_weights_after_loading

    def watched(self: Any, layer: Any) -> None:
        native = layer.moe_config.intermediate_size_per_partition_unpadded
        halves = layer.w13_weight.unflatten(1, (2, -1))
        pads = (halves[:, :, native:], layer.w2_weight[:, :, native:])
        live = (halves[:, :, :native], layer.w2_weight[:, :, :native])
        seen.append([max(float(part.abs().max()) for part in parts) for parts in (pads, live)])
        process(self, layer)

    UnquantizedFusedMoEMethod.process_weights_after_loading = watched


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.pop("poison", False):
        poison()
    if options.pop("without_fill", False):
        without_fill()
    reload = options.pop("reload", False)
    pads: list[list[float]] = []
    if reload:
        watch_pads(pads)
    # Under its own name, so that workers can import what is sent to them.
    import serve
    from vllm import LLM, SamplingParams

    llm = LLM(
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=4,
        dtype="bfloat16",
        kv_cache_memory_bytes=64 << 20,
        **options,
    )
    if reload:
        llm.collective_rpc("reload_weights")
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling, use_tqdm=False)
    result = {
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "sizes": llm.apply_model(serve.sizes_of),
        "config": llm.llm_engine.vllm_config.additional_config,
        "pads": pads,
        "hash": llm.llm_engine.vllm_config.compute_hash(),
    }
    print("\nRESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    main()
