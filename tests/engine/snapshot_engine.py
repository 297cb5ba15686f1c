"""Serves the tiny model once, from a checkpoint or a snapshot, saves snapshots, and prints the tokens.

Run by the tests as a program, like `serve.py`. `save_created` saves parameters before vLLM repacks them,
`save_processed` as vLLM does by itself; `round_up` has vLLM round the intermediate size, without any plugin.
"""

import json
import os
import sys
from typing import Any

from serve import PROMPTS, TOKENS


def save_before_repacking(path: str) -> None:
    """Have each model saved when its loader is done, and repacked after that."""
    from vllm.model_executor.model_loader import base_loader
    from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

    process = base_loader.process_weights_after_loading

    def saved_first(model: Any, *args: Any) -> None:
        ShardedStateLoader.save_model(model, path)
        process(model, *args)

    base_loader.process_weights_after_loading = saved_first


def round_up(multiple: int) -> None:
    """Stand for a release of vLLM that rounds these sizes up."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

    def rounded(self: Any, hidden: int, intermediate: int, *args: Any, **kwargs: Any) -> tuple[int, int]:
        return hidden, -(-intermediate // multiple) * multiple

    UnquantizedFusedMoEMethod.maybe_roundup_sizes = rounded


def main() -> None:
    options = json.loads(sys.argv[1])
    created, processed = options.pop("save_created", None), options.pop("save_processed", None)
    multiple = options.pop("round_up", None)
    if created:
        save_before_repacking(created)
    if multiple:
        round_up(multiple)
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
    if processed:
        llm.collective_rpc("save_sharded_state", args=(processed,))
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling, use_tqdm=False)
    tokens = [list(answer.outputs[0].token_ids) for answer in answers]
    print("\nRESULT " + json.dumps({"tokens": tokens}), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    main()
