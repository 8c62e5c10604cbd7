"""A team's own model: made of its code, tried before it trains, and told of when it fails.

The code is imported from memory, never from a folder: what trains is what the run's identity
names, and what later stages build the module of.
"""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import importlib
import importlib.abc
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from falaj.workloads.errors import HARDWARE, LOST, CodeError, WorkloadError, printable, some
from falaj.workloads.training import offline, own_packages
from falaj.workloads.training.faults import code_of
from falaj.workloads.training.own_code import ARCHIVE, OwnCode, OwnModel, find
from falaj.workloads.training.tensors import backward, frozen, modules_of

_PREFIX: Final = f"{ARCHIVE}/"
_NEEDED: Final = "a subclass of torch.nn.Module"
_MOST_SAID: Final = 500
ALIKE: Final = 1e-3
"""Of the largest answer: what orders of summation make of it is a thousandth of that."""
_NAMED: Final = 8
_DIVIDED: Final = (nn.Linear, nn.Embedding)
COLWISE, ROWWISE = "colwise", "rowwise"
"""How a matrix is divided, in the words that transformers' plans have: by what it makes, or by
what it takes."""


class _Loader(importlib.abc.InspectLoader):
    """One module of the code; a folder without ``__init__.py`` is an empty one."""

    def __init__(self, content: bytes, place: str, is_package: bool) -> None:
        self._content, self._place, self._is_package = content, place, is_package

    def is_package(self, fullname: str) -> bool:
        del fullname
        return self._is_package

    def get_source(self, fullname: str) -> str:
        del fullname
        return importlib.util.decode_source(self._content)

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self._content, self._place, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of one code, and no others."""

    def __init__(self, code: OwnCode) -> None:
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] not in self._code.roots:
            return None
        place, folder = self._code.place(fullname), fullname.replace(".", "/") + "/"
        if place is None and not any(each.startswith(folder) for each in self._code.files):
            return None
        is_package = place is None or place.startswith(f"{folder}__init__.")
        content = b"" if place is None else self._code.files[place]
        origin = _PREFIX + (folder if place is None else place)
        loader = _Loader(content, origin, is_package)
        spec = importlib.util.spec_from_loader(fullname, loader, origin=origin)
        if spec is not None:
            spec.has_location = True
        return spec


_provided: list[str] = []
"""The folder of packages that imports find after Falaj's own: at most one."""


def _provide(code: OwnCode) -> None:
    """Have imports find the packages that the code needs, after those of Falaj's environment.

    Raises:
        WorkloadError: they can't be had, or the code of another model in this process needs
            others.
    """
    content = code.requirements
    folder = own_packages.provide(content, own_packages.FILE) if content is not None else None
    if folder is None or str(folder) in _provided:
        return
    if _provided:
        raise WorkloadError(
            f"the model's {own_packages.FILE} pins other packages than that of another model in "
            "this process, such as its teacher: give both folders the same file"
        )
    _provided.append(str(folder))
    sys.path.append(str(folder))
    importlib.invalidate_caches()


def _install(code: OwnCode) -> None:
    """Have imports find this code, and no longer that of another model."""
    _provide(code)
    offline.set_variables()
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Finder)]
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__loader__", None), _Loader):
            del sys.modules[name]
    sys.meta_path.insert(0, _Finder(code))


@contextlib.contextmanager
def guarded(what: str = "") -> Generator[None, None, None]:
    """Tell what a team's code raises in the block by its file and line, without a trace of ours.

    What it prints goes to the standard error: the standard output has the program's own answers.

    Args:
        what: what fails where the block does: then any error is the model's. Default: those that
            went through the code alone.

    Raises:
        CodeError: the code raised an error, or ended the program. Faults of the machine go through
            as they are.
    """
    try:
        # What has a name is imported, made or tried: a model is fetched there, if anywhere.
        kept = offline.offline() if what else contextlib.nullcontext()
        with contextlib.redirect_stdout(sys.stderr), kept:
            yield
    except offline.NetworkError as error:
        raise CodeError(f"{_begin(what, place_of(error))}: {error}") from error
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:
        if not isinstance(error, SystemExit) and code_of(error) in (HARDWARE, LOST):
            raise
        place = place_of(error)
        if place is None and not what:
            raise
        raise CodeError(f"{_begin(what, place)}: {_said(error)}{_hint(error)}") from error


def _begin(what: str, place: str | None) -> str:
    begin = f"{what}: {place}" if what and place else what
    return begin or f"the model's code failed in {place}"


def _hint(error: BaseException) -> str:
    """What to do about an error whose own words don't say it."""
    if any(map(offline.wanted, causes(error))):
        return f". The network is kept from a model's code: {offline.HOW}"
    if isinstance(error, ModuleNotFoundError):
        return (
            f". Packages beside those of Falaj's environment are pinned in {own_packages.FILE} in "
            "the folder of the code"
        )
    return ""


def build(code: OwnCode, model: OwnModel, inputs: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a module with fresh weights from torch's current random state.

    Args:
        code: what the class is imported from.
        model: the class and its options.
        inputs: one row's shape.
        outputs: the number of classes, or 1 for a regression.

    Raises:
        WorkloadError: there is no such class, it is no module, or it can't be made of these.
    """
    made_of = _class(code, model)
    _check_arguments(made_of, model, inputs, outputs)
    return _make(made_of, model, inputs, outputs)


def _class(code: OwnCode, model: OwnModel) -> type[nn.Module]:
    find(code, model.name)
    _install(code)
    with guarded(f"the model {model.name} can't be imported"):
        imported = importlib.import_module(model.module)
    made_of = getattr(imported, model.class_name, None)
    if not isinstance(made_of, type) or not issubclass(made_of, nn.Module):
        kind = "a class" if isinstance(made_of, type) else f"a {type(made_of).__name__}"
        raise WorkloadError(
            f"the model {model.name}: {model.class_name} is {kind}, but no {_NEEDED[2:]}"
        )
    return made_of


def takes_raw_numbers(code: OwnCode, model: OwnModel) -> bool:
    """Whether the class says that a table's numbers come to it as they stand in the table.

    It does by ``raw_numbers = True``: for numbers of tokens and the like, which are looked up.

    Raises:
        WorkloadError: as `build`; or that is neither True nor False.
    """
    found: object = getattr(_class(code, model), "raw_numbers", False)
    if not isinstance(found, bool):
        raise WorkloadError(
            f"the model {model.name}: raw_numbers is {found!r}: allowed are True (a table's "
            "numbers as they are) and False (in standard units)"
        )
    return found


def merged(module: nn.Module, own: OwnModel | None) -> nn.Module:
    """Return what is exported in place of a team's trained module: what its ``merged()`` gives.

    As one of low-rank adaptation whose products are added to the matrices.

    Args:
        module: in evaluation mode; it stays as it is.
        own: what it is; None: none of a team's own.

    Raises:
        WorkloadError: the method fails, or gives no module.
    """
    if own is None or not callable(getattr(type(module), "merged", None)):
        return module
    with guarded(f"merged() of {own.class_name} fails"):
        made: object = cast("Any", copy.deepcopy(module)).merged()
    if not isinstance(made, nn.Module):
        raise WorkloadError(
            f"merged() of {own.class_name} gives a {type(made).__name__}: a torch.nn.Module that "
            "takes the same rows and gives the same answers is needed"
        )
    return made.eval().requires_grad_(False)


def _make(
    made_of: type[nn.Module], model: OwnModel, inputs: tuple[int, ...], outputs: int
) -> nn.Module:
    options = copy.deepcopy(dict(model.options))
    given = ", ".join(
        [repr(inputs), repr(outputs), *(f"{name}={value!r}" for name, value in options.items())]
    )
    with guarded(f"{model.class_name}({given}) can't be made"):
        return made_of(inputs, outputs, **options)


def _check_arguments(
    made_of: type, model: OwnModel, inputs: tuple[int, ...], outputs: int
) -> None:
    try:
        taken = inspect.signature(made_of)
    except (TypeError, ValueError):  # then making it tells
        return
    try:
        taken.bind(inputs, outputs, **model.options)
    except TypeError as error:
        names = ["inputs", "outputs", *model.options]
        raise WorkloadError(
            f"the model {model.name} takes {model.class_name}{taken}, but is given "
            f"({', '.join(names)}): {error}. First come the shape of a row and the number of "
            "outputs, then its options by name"
        ) from None


def own_loss(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return the method ``loss(outputs, labels)`` of a team's module, if it has one."""
    found = getattr(module, "loss", None) if hasattr(type(module), "loss") else None
    return cast("Callable[[Tensor, Tensor], Tensor] | None", found)


def own_optimizer(
    module: nn.Module, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer | None:
    """Return what the method ``optimizer`` of a team's module makes, if it has one.

    Raises:
        WorkloadError: it can't be made, is no optimizer, or one that the module learns nothing by.
    """
    if not hasattr(type(module), "optimizer"):
        return None
    with guarded(f"optimizer({learning_rate:g}, {weight_decay:g}) of the model fails"):
        made: object = cast("Any", module).optimizer(learning_rate, weight_decay)
    if not isinstance(made, torch.optim.Optimizer) or isinstance(made, torch.optim.LBFGS):
        raise WorkloadError(
            f"optimizer({learning_rate:g}, {weight_decay:g}) of the model gave a "
            f"{type(made).__name__}: a torch.optim.Optimizer is needed, and none that wants a "
            "closure"
        )
    own = {id(parameter) for parameter in module.parameters()}
    if any(id(each) not in own for group in made.param_groups for each in group["params"]):
        raise WorkloadError(
            "the model's optimizer holds parameters that aren't those of the model, of which it "
            "would learn nothing: give it self.parameters(), or some of them"
        )
    return made


def own_tensor_plan(module: nn.Module, processes: int) -> dict[str, str]:
    """Return how a team's module wants its matrices divided, by what ``tensor_plan()`` says.

    Args:
        module: the whole one.
        processes: that divide each matrix.

    Returns:
        ``colwise`` or ``rowwise`` by the name of each layer that is divided.

    Raises:
        WorkloadError: it has no plan, or one that these processes can't follow.
    """
    name = type(module).__name__
    asked = f"--tensor {processes} divides matrices as the model's tensor_plan() says"
    if not callable(getattr(type(module), "tensor_plan", None)):
        raise WorkloadError(
            f"{asked}, and {name} has none: give it one that returns {COLWISE!r} or {ROWWISE!r} "
            "by the name of a layer, or divide weights and optimiser alone (--shard)"
        )
    with guarded(f"tensor_plan() of {name} fails"):
        said: object = cast("Any", module).tensor_plan()
    if not isinstance(said, Mapping) or not said:
        raise WorkloadError(
            f"tensor_plan() of {name} gives {said!r}: a dictionary of {COLWISE!r} or {ROWWISE!r} "
            "by the names of layers is needed"
        )
    layers = dict(modules_of(module))
    found: dict[str, str] = {}
    for pattern, word in cast("Mapping[object, object]", said).items():
        what = f"tensor_plan() of {name}: {pattern!r}"
        if word not in (COLWISE, ROWWISE):
            raise WorkloadError(f"{what} is {word!r}; allowed: {COLWISE!r} or {ROWWISE!r}")
        named = [each for each in layers if fnmatch.fnmatchcase(each, str(pattern))]
        if not named:
            there = [each for each, layer in layers.items() if isinstance(layer, _DIVIDED)]
            raise WorkloadError(
                f"{what} is the name of no layer; those that can be divided: "
                f"{some(there, _NAMED) or 'none'}"
            )
        for each in named:
            if each in found:
                raise WorkloadError(f"{what} is {each}, which another name stands for already")
            _check_divisible(layers[each], str(word), processes, f"{what} is {each}")
            found[each] = str(word)
    return found


def _check_divisible(layer: nn.Module, word: str, processes: int, what: str) -> None:
    if isinstance(layer, nn.Linear):
        size = layer.out_features if word == COLWISE else layer.in_features
    elif isinstance(layer, nn.Embedding):
        size = layer.embedding_dim if word == COLWISE else layer.num_embeddings
    else:
        raise WorkloadError(
            f"{what}, a {type(layer).__name__}; allowed: an nn.Linear or an nn.Embedding"
        )
    if size % processes:
        side = "columns" if word == COLWISE else "rows"
        raise WorkloadError(
            f"{what}, whose {size} {side} can't be divided among {processes} processes alike: "
            "give it a multiple, or choose another --tensor"
        )


def try_out(
    module: nn.Module,
    model: OwnModel,
    batch: tuple[Tensor, Tensor],
    outputs: int,
    *,
    losses: Callable[[nn.Module, Tensor, Tensor], Tensor],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer | None],
    precision: contextlib.AbstractContextManager[object],
    several: bool,
) -> frozenset[str]:
    """Run the module on one batch, as it will be judged and as it will learn; it stays as it is.

    Parameters that wait for their first batch to know their size get it.

    Args:
        module: on the device.
        model: what it is.
        batch: inputs and labels, as many rows as the smallest part of a batch has.
        outputs: how many a row has.
        losses: of a module, its outputs and the labels.
        optimizer: of a module's own; None: it has none.
        precision: the context that it learns in.
        several: whether processes share the gradients.

    Returns:
        The names of frozen parameters that it changes by itself as it learns, as a moving average
        of others.

    Raises:
        WorkloadError: it can't be used, with the reason.
    """
    inputs, labels = batch
    name, rows = model.class_name, len(batch[0])
    shape = tuple(inputs.shape)
    # Of the dataset itself, which is asked for more often than once, it must change nothing.
    rows_given, labels_given = inputs.clone(), labels.clone()
    with guarded(f"{name} can't be run on inputs of the shape {shape}"), torch.no_grad():
        given = module.eval()(rows_given)
        _check_outputs(given, rows, outputs, name)
    if given.dtype != torch.float32:
        raise WorkloadError(
            f"{name} gives {given.dtype}: float32 is needed, as outputs.float() makes it"
        )
    if not torch.equal(rows_given, inputs):
        raise WorkloadError(
            f"{name} changes the rows that it is given: have it make new ones instead "
            "(rows = rows / 16, not rows /= 16)"
        )
    _check_alone(module, inputs, given, name)
    for key, value in module.state_dict().items():
        if not isinstance(cast("object", value), Tensor):
            raise WorkloadError(
                f"{key} in the state of {name} is a {type(value).__name__}: a checkpoint holds "
                "tensors alone"
            )
    few = (
        f" ({rows} row is the smallest part of a batch: a larger --batch-size, or fewer "
        "--processes and --accumulation, make it larger)" if rows == 1 else ""
    )  # fmt: skip
    with guarded(
        f"a new {name} can't take the weights of one that was used: make all of its layers and "
        "buffers in __init__, in the sizes that they keep"
    ):
        made_of = getattr(sys.modules[model.module], model.class_name)
        _make(made_of, model, shape[1:], outputs).load_state_dict(module.state_dict())
    with guarded(f"{name} can't be copied"):
        tried, sizes = copy.deepcopy(module).train(), _sizes(module)
        still = frozen(tried)
        begun = {name: each.clone() for name, each in still.items()}
    with guarded(f"{name} can't learn from inputs of the shape {shape}{few}"):
        with precision:
            given = tried(inputs.clone())
        _check_outputs(given, rows, outputs, name)
        each = losses(tried, given.float(), labels_given)
        _check_losses(each, rows)
        backward(each.mean())
    if not torch.equal(labels_given, labels):
        raise WorkloadError(
            f"the loss of {name} changes the labels that it is given: have it make new ones"
        )
    made = optimizer(tried)
    if made is not None:
        with guarded("the model's optimizer can't take a step"):
            made.step()
    changed = sorted(key for key, _ in sizes ^ _sizes(tried))
    if changed:
        raise WorkloadError(
            f"{name} has others or of other sizes after it has learned of a batch: "
            f"{', '.join(dict.fromkeys(changed))}. Make all parameters and buffers in __init__, "
            "in the sizes that they keep"
        )
    idle = [key for key, p in tried.named_parameters() if p.requires_grad and p.grad is None]
    if several and idle:
        raise WorkloadError(
            f"{name} doesn't use {', '.join(idle[:3])}: several processes share the gradients of "
            "all that is learned. Take them out, freeze them (requires_grad_(False)), or use one "
            "process"
        )
    module.train()
    return frozenset(name for name, each in still.items() if not torch.equal(each, begun[name]))


def _check_alone(module: nn.Module, inputs: Tensor, given: Tensor, name: str) -> None:
    """Refuse a module whose answer for the last row is another when that comes alone."""
    with guarded(f"{name} can't be run on one row alone"), torch.no_grad():
        alone: Tensor = module(inputs[-1:].clone())
        _check_outputs(alone, 1, given.shape[1], name)
    alone, given = alone.detach(), given.detach()
    allowed = ALIKE * max(1.0, float(given.abs().max()))
    if float((alone - given[-1:]).abs().max()) > allowed:
        raise WorkloadError(
            f"{name} answers for a row by the rows that come with it, or by chance, when it is "
            "judged (eval()): a server is asked for any number of rows at once. Have it compute "
            "over no rows but the one, and draw only while it learns (self.training)"
        )


def _sizes(module: nn.Module) -> set[tuple[str, tuple[int, ...]]]:
    """The parameters and buffers of a module, with their shapes."""
    held = (*module.named_parameters(), *module.named_buffers())
    return {(name, tuple(each.shape)) for name, each in held}


def _check_outputs(given: object, rows: int, outputs: int, name: str) -> None:
    wanted = (rows, outputs)
    if not isinstance(given, Tensor):
        hint = ": have forward() return its .logits" if hasattr(given, "logits") else ""
        raise WorkloadError(
            f"{name} gives a {type(given).__name__} for {rows} row(s): a tensor of the shape "
            f"{wanted} is needed{hint}"
        )
    if tuple(given.shape) != wanted or not given.is_floating_point():
        raise WorkloadError(
            f"{name} gives {given.dtype} of the shape {tuple(given.shape)} for {rows} row(s): "
            f"floats of the shape {wanted} are needed, one for each class, or one value"
        )
    if not bool(torch.isfinite(given).all()):
        raise WorkloadError(
            f"{name} gives what is no number (NaN or infinity) before it has learned anything: "
            "look at how its weights begin and at what it divides by"
        )


def _check_losses(given: object, rows: int) -> None:
    if not isinstance(given, Tensor) or tuple(given.shape) != (rows,):
        what = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise WorkloadError(
            f"the model's loss gives {what} for {rows} row(s): a tensor of the shape ({rows},) is "
            "needed, one loss for each row (as reduction='none')"
        )
    if not given.requires_grad:
        raise WorkloadError(
            "nothing of the model learns from its loss: it has no parameters, all are frozen, or "
            "the loss is detached from them"
        )
    if not bool(torch.isfinite(given).all()):
        raise WorkloadError("the model's loss is no number (NaN or infinity) from the beginning")


def place_of(error: BaseException) -> str | None:
    """The innermost line of the code that an error went through; None where there is none."""
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(_PREFIX):
        return f"{str(error.filename).removeprefix(_PREFIX)}, line {error.lineno}"
    for each in causes(error):
        for frame in reversed(traceback.extract_tb(each.__traceback__)):
            if frame.filename.startswith(_PREFIX):
                return f"{frame.filename.removeprefix(_PREFIX)}, line {frame.lineno}"
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it came from."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__


def _said(error: BaseException) -> str:
    """An error's kind and words, on one line that no terminal is steered by."""
    if isinstance(error, SystemExit):
        return "it ended the program (SystemExit)"
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    shown = printable(" ".join(words.split())).rstrip(".")
    shown = shown if len(shown) <= _MOST_SAID else shown[:_MOST_SAID] + " …"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
