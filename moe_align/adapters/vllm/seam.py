"""Where the adapter touches vLLM: the moments in an expert layer's life at which it looks, or changes a size.

The classes below belong to vLLM and are wrapped right after their module is first imported, so that loading
the plugin imports nothing. Each wrapper calls the engine's own code and then a `Watcher`; what the watcher
does with it is not known here.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

#: The modules that are wrapped, for every release of `SUPPORTED` (see `session`).
LAYER_MODULE = "vllm.model_executor.layers.fused_moe.routed_experts"
LOADER_MODULE = "vllm.model_executor.model_loader.utils"
ARGUMENTS_MODULE = "vllm.engine.arg_utils"
SNAPSHOT_MODULE = "vllm.model_executor.model_loader.sharded_state_loader"

Pair = tuple[int, int]  # hidden, intermediate per partition

_WRAPPED = "_moe_align_wrapped"


class Watcher(Protocol):
    """What is told of the engine's steps, in this order for each layer."""

    def config_made(self, vllm_config: Any) -> None:
        """The front end has made the engine's configuration; workers get a copy."""

    def sizes_chosen(
        self, layer: Any, method: Any, entering: tuple[int, int], chosen: tuple[int, int]
    ) -> tuple[int, int]:
        """The sizes (hidden, intermediate per partition) to allocate, where the engine chose `chosen`."""

    def weights_created(self, layer: Any, method: Any) -> None:
        """The layer's parameters exist and hold nothing yet."""

    def weights_loaded(self, layer: Any, method: Any) -> AbstractContextManager[None]:
        """The checkpoint is in the parameters; the engine repacks them inside this, after each reload too."""

    def model_built(self, model: Any) -> None:
        """All layers of a model exist; called once for each model (a draft model is one more)."""

    def snapshot_saved(self, model: Any, path: str) -> None:
        """This rank's parameters of a model are in a folder, as `sharded_state` has them."""

    def snapshot_loading(self, model: Any, path: str) -> None:
        """This rank's parameters will be read from there."""


def install(watcher: Callable[[], Watcher]) -> None:
    """Have a watcher told of everything from now on, in modules that are loaded already and in later ones.

    It is asked for when there is something to tell: most processes that load plugins build no model.
    """
    after_import(ARGUMENTS_MODULE, lambda module: _wrap_arguments(module, watcher))
    after_import(LAYER_MODULE, lambda module: _wrap_layers(module, watcher))
    after_import(LOADER_MODULE, lambda module: _wrap_loader(module, watcher))
    after_import(SNAPSHOT_MODULE, lambda module: _wrap_snapshots(module, watcher))


def after_import(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act` with module `name`: now if it is imported, else right after it has been."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        act(module)
    else:
        sys.meta_path.insert(0, _AfterImport(name, act))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module as the finders behind it would, and acts on it once it has run."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        # Removed first: the search below would find this finder again.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            run(module)
            self.act(module)

        # The loader belongs to this one spec, so no other module is affected.
        object.__setattr__(spec.loader, "exec_module", run_and_act)
        return spec


def _wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace `owner.name` by `make(original)`, once however often this is called."""
    original = getattr(owner, name)
    if getattr(original, _WRAPPED, False):
        return
    wrapped = functools.wraps(original)(make(original))
    setattr(wrapped, _WRAPPED, True)
    setattr(owner, name, wrapped)


def _wrap_arguments(module: Any, watcher: Callable[[], Watcher]) -> None:
    def make(create: Callable[..., Any]) -> Callable[..., Any]:
        def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
            vllm_config = create(self, *args, **kwargs)
            watcher().config_made(vllm_config)
            return vllm_config

        return create_engine_config

    _wrap(module.EngineArgs, "create_engine_config", make)


def _wrap_loader(module: Any, watcher: Callable[[], Watcher]) -> None:
    def make(initialize: Callable[..., Any]) -> Callable[..., Any]:
        def initialize_model(*args: Any, **kwargs: Any) -> Any:
            model = initialize(*args, **kwargs)
            watcher().model_built(model)
            return model

        return initialize_model

    original = module.initialize_model
    _wrap(module, "initialize_model", make)
    # Loaders that were imported earlier hold the function under the same name.
    for name, other in list(sys.modules.items()):
        if name.startswith("vllm.") and getattr(other, "initialize_model", None) is original:
            vars(other)["initialize_model"] = module.initialize_model


def _wrap_snapshots(module: Any, watcher: Callable[[], Watcher]) -> None:
    def saving(save: Callable[..., None]) -> Callable[..., None]:
        def save_model(model: Any, path: str, *args: Any, **kwargs: Any) -> None:
            save(model, path, *args, **kwargs)
            watcher().snapshot_saved(model, path)

        return save_model

    def loading(load: Callable[..., None]) -> Callable[..., None]:
        def load_weights(self: Any, model: Any, model_config: Any) -> None:
            watcher().snapshot_loading(model, model_config.model_weights or model_config.model)
            load(self, model, model_config)

        return load_weights

    loader = module.ShardedStateLoader
    _wrap(loader, "save_model", saving)
    # Loaders call it on the class and on themselves.
    loader.save_model = staticmethod(loader.save_model)
    _wrap(loader, "load_weights", loading)


def _wrap_layers(module: Any, watcher: Callable[[], Watcher]) -> None:
    def make(construct: Callable[..., None]) -> Callable[..., None]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            # On the instance, not the class: a subclass that replaces the method it gets from its parent
            # (DeepSeek-V4 does) is still seen with the one it ends up with. Past nn.Module.__setattr__,
            # which does not work before its __init__.
            choose = functools.partial(_watched_method, self, watcher)
            object.__setattr__(self, "_get_quant_method", choose)
            construct(self, *args, **kwargs)
            self.__dict__.pop("_get_quant_method", None)

        return __init__

    _wrap(module.RoutedExperts, "__init__", make)


def _watched_method(layer: Any, watcher: Callable[[], Watcher], *args: Any, **kwargs: Any) -> Any:
    """The quant method that the layer would get, with its three steps watched."""
    method = type(layer)._get_quant_method(layer, *args, **kwargs)
    round_up = method.maybe_roundup_sizes
    create = method.create_weights
    process = method.process_weights_after_loading

    def maybe_roundup_sizes(
        hidden_size: int, intermediate_size_per_partition: int, *args: Any, **kwargs: Any
    ) -> tuple[int, int]:
        chosen = round_up(hidden_size, intermediate_size_per_partition, *args, **kwargs)
        return watcher().sizes_chosen(
            layer, method, (hidden_size, intermediate_size_per_partition), tuple(chosen)
        )

    def create_weights(*args: Any, **kwargs: Any) -> None:
        create(*args, **kwargs)
        watcher().weights_created(layer, method)

    def process_weights_after_loading(layer: Any, *args: Any, **kwargs: Any) -> Any:
        with watcher().weights_loaded(layer, method):
            return process(layer, *args, **kwargs)

    # Past __setattr__ again: some methods are torch modules.
    for step in (maybe_roundup_sizes, create_weights, process_weights_after_loading):
        object.__setattr__(method, step.__name__, step)
    return method
