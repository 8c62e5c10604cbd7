from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import DTypeLike, NDArray

__version__: str

class ExecutionMode:
    ORT_SEQUENTIAL: ExecutionMode

class GraphOptimizationLevel:
    ORT_DISABLE_ALL: GraphOptimizationLevel

class SessionOptions:
    execution_mode: ExecutionMode
    graph_optimization_level: GraphOptimizationLevel
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int

    def add_session_config_entry(self, arg0: str, arg1: str) -> None: ...

class RunOptions:
    terminate: bool

class NodeArg:
    name: str
    shape: list[int | str | None]
    type: str

class IOBinding:
    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: DTypeLike,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None: ...
    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None: ...

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] | None = None,
    ) -> None: ...
    def get_inputs(self) -> Sequence[NodeArg]: ...
    def get_outputs(self) -> Sequence[NodeArg]: ...
    def get_overridable_initializers(self) -> Sequence[NodeArg]: ...
    def io_binding(self) -> IOBinding: ...
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, NDArray[Any]],
        run_options: RunOptions | None = None,
    ) -> Sequence[Any]: ...
    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None: ...
