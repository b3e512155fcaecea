"""The free constants of the model: what each means, its unit, where a fit starts and how far it may stray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Parameter:
    """``start`` is a round first guess, ``spread`` the width of its prior in natural-log units.

    ``scope`` "shared": one number for all chips, with a wide prior. "chip": every chip multiplies the shared number by
    a factor of its own whose log has prior width ``chip_spread``; a chip without rows keeps the shared one.
    """

    name: str
    start: float
    unit: str
    meaning: str
    spread: float = 0.5
    chip_spread: float = 0.0

    @property
    def scope(self) -> Literal["shared", "chip"]:
        return "chip" if self.chip_spread else "shared"


PARAMETERS: tuple[Parameter, ...] = (
    # the call (spec/performance §3)
    Parameter("floor_copies_us", 100, "us", "call floor with host copies", 3.0, 0.35),
    Parameter("floor_evaluate_us", 100, "us", "call floor with surfaces filled in place", 3.0, 0.35),
    Parameter("host_in_gbs", 15, "GB/s", "host copies into input surfaces", 3.0, 0.2),
    Parameter("host_out_gbs", 15, "GB/s", "host copies and conversion of results", 3.0, 0.3),
    Parameter("host_factor", 1, "", "speed of the host that copies", 0.001, 0.5),
    Parameter("task_start_us", 5, "us", "start of a program on the engine"),
    Parameter("submit_us", 23, "us", "submission to start of the task (Core ML, M6)"),
    Parameter("coreml_floor_us", 150, "us", "Core ML call floor where the M6 model does not apply"),
    Parameter("coreml_copy_gbs", 15, "GB/s", "Core ML copies of inputs and outputs, chips before M6"),
    Parameter("complete_short_us", 130, "us", "completion of a short task (Core ML, M6)"),
    Parameter("complete_long_us", 300, "us", "completion of a long task"),
    Parameter("complete_from_us", 280, "us", "task length where completion begins to lengthen"),
    Parameter("complete_to_us", 500, "us", "task length where it stops"),
    Parameter("complete_awake_us", 190, "us", "completion while other processes keep the CPU busy"),
    Parameter("two_engine_call_us", 14, "us", "a call that uses both engines"),
    Parameter("worker_us", 25, "us", "round trip through a worker process"),
    # arithmetic (§4)
    Parameter("mac_rate_early", 0.92, "", "share of the peak that dense layers reach, H13 to H16"),
    Parameter("mac_rate_late", 0.95, "", "the same from H17 on"),
    Parameter("mac_rate_tiled", 0.93, "", "factor when tiles are shared out over two engines"),
    Parameter("int8_rate", 0.93, "", "share of the doubled rate that int8 layers reach"),
    Parameter("winograd_gain", 1.4, "", "3x3 and 1x3 kernels from H17 on"),
    Parameter("dilation_rate", 0.67, "", "rate of dilated kernels, expanded with zeros"),
    Parameter("sparse_base", 0.25, "", "time share that zero weights do not save"),
    Parameter("sparse_slope", 0.8, "", "time share per density"),
    Parameter("runtime_rate", 0.33, "", "share of the peak with two run-time operands"),
    Parameter("unit_switch_us", 3.8, "us", "change between NE and PE inside a program, H13 and H14"),
    Parameter("engine_sync_us", 0.4, "us", "a layer that two engines share"),
    Parameter("halo_us", 2, "us", "halo rows between two engines, per layer"),
    # weights (§5)
    Parameter("weights_early_gbs", 60, "GB/s", "weight stream, H13 and H14"),
    Parameter("weights_middle_gbs", 60, "GB/s", "weight stream, H15 and H16"),
    Parameter("weights_late_gbs", 60, "GB/s", "weight stream from H17 on"),
    Parameter("weights_factor", 1, "", "weight stream of a chip within its family", 0.001, 0.3),
    Parameter("weights_power_of_two_gbs", 37, "GB/s", "wide 1x1 layers of 4096, 8192 ... channels on H16"),
    Parameter("packed_stream", 1, "", "time of palette and sparse streams over their bytes' share"),
    # activations (§6)
    Parameter("activations_early_gbs", 60, "GB/s", "activation DMA, H13 and H14"),
    Parameter("activations_middle_gbs", 60, "GB/s", "activation DMA, H15 and H16"),
    Parameter("activations_late_gbs", 60, "GB/s", "activation DMA from H17 on, per engine"),
    Parameter("activations_factor", 1, "", "activation DMA of a chip within its family", 0.001, 0.12),
    Parameter("cache_mb", 9.6, "MB", "element-wise data that the system cache absorbs (M6)"),
    Parameter("cache_gbs", 60, "GB/s", "element-wise DMA inside that cache, per engine"),
    Parameter("planar_dram_gbs", 36, "GB/s", "element-wise DMA beyond it, per engine"),
    # planar engine and compound functions (§7)
    Parameter("unary_rate", 58, "1e9/s", "one-input element-wise, per engine"),
    Parameter("binary_rate", 54, "1e9/s", "two-input element-wise, per engine"),
    Parameter("binary_large_rate", 30, "1e9/s", "the same with operands beyond 1.3 MiB per engine"),
    Parameter("unary_task_us", 0.3, "us", "per one-input task"),
    Parameter("binary_task_us", 1.5, "us", "per two-input task"),
    Parameter("reduce_rate", 30, "1e9/s", "reductions"),
    Parameter("pool_rate", 16, "1e9/s", "pooling windows"),
    Parameter("move_rate", 16, "1e9/s", "transposes, slices, shuffles"),
    Parameter("short_norm_rate", 20, "1e9/s", "norms whose axis is below the reduce-by-transpose threshold"),
    Parameter("short_softmax_rate", 20, "1e9/s", "softmax below that threshold"),
    Parameter("softmax_early_rate", 6.2, "1e9/s", "softmax, H13 and H14"),
    Parameter("softmax_middle_rate", 8.8, "1e9/s", "softmax, H15 and H16"),
    Parameter("softmax_late_rate", 7.2, "1e9/s", "softmax from H17 on"),
    Parameter("layer_norm_early_rate", 3.0, "1e9/s", "layer norm, H13 and H14"),
    Parameter("layer_norm_middle_rate", 2.0, "1e9/s", "layer norm, H15 and H16"),
    Parameter("layer_norm_late_rate", 1.2, "1e9/s", "layer norm from H17 on"),
    Parameter("group_norm_early_rate", 12, "1e9/s", "group norm, H13 and H14"),
    Parameter("group_norm_middle_rate", 10, "1e9/s", "group norm, H15 and H16"),
    Parameter("group_norm_late_rate", 9, "1e9/s", "group norm from H17 on"),
    Parameter("rms_norm_early_rate", 0.35, "1e9/s", "rms norm, H13 and H14"),
    Parameter("rms_norm_middle_rate", 0.4, "1e9/s", "rms norm, H15 and H16"),
    Parameter("rms_norm_late_rate", 0.5, "1e9/s", "rms norm from H17 on"),
    Parameter("sdpa_row_us", 0.15, "us", "native attention, per head and query row"),
    Parameter("topk_us", 2, "us", "native arg max of a short row"),
)

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
