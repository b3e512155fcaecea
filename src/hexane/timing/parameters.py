"""The free constants of the model: what each means, its unit, where a fit starts and how far it may stray."""

from __future__ import annotations

from dataclasses import dataclass

SHARED = "shared"
"""Owner of a number that all chips share."""


@dataclass(frozen=True)
class TimingParameter:
    """``start`` is a round first guess and ``spread`` the width of its prior, in natural-log units.

    One number holds for all chips. Where ``family_spread`` is set, each family of generations (``early``, ``middle``,
    ``late``) multiplies it by a factor of its own whose log has that prior width; ``chip_spread`` likewise for a chip.
    A family or chip without rows keeps the number above it.
    """

    name: str
    start: float
    unit: str
    meaning: str
    spread: float = 1.0
    family_spread: float = 0.0
    chip_spread: float = 0.0


PARAMETERS: tuple[TimingParameter, ...] = (
    # the call
    TimingParameter(
        "call_factor", 1, "", "slowness of a machine's calls, whatever the interface", 0.001, chip_spread=0.3
    ),
    TimingParameter("floor_copies_us", 100, "us", "call floor with host copies", 3.0, chip_spread=0.15),
    TimingParameter("floor_evaluate_us", 100, "us", "call floor with surfaces filled in place", 3.0, chip_spread=0.15),
    TimingParameter("host_in_gbs", 15, "GB/s", "host copies into input surfaces", 3.0, chip_spread=0.2),
    TimingParameter("host_out_gbs", 15, "GB/s", "host copies and conversion of results", 3.0, chip_spread=0.3),
    TimingParameter("host_factor", 1, "", "speed of the host that copies", 0.001, chip_spread=0.5),
    TimingParameter(
        "padded_copy", 2, "", "time of copying rows that a surface pads to 64 bytes, over plain copies", 0.5
    ),
    TimingParameter("typical_us", 10, "us", "a typical call with host copies over the best of many"),
    TimingParameter("sleep_us", 50, "us", "waking a CPU core that slept while it waited (evaluate)"),
    TimingParameter("sleep_from_us", 100, "us", "task length where that begins"),
    TimingParameter("sleep_to_us", 200, "us", "task length where it is complete"),
    TimingParameter("task_start_us", 5, "us", "start of a program on the engine"),
    TimingParameter("submit_us", 20, "us", "submission to start of the task (Core ML)"),
    TimingParameter("coreml_copy_gbs", 15, "GB/s", "Core ML copies of inputs and outputs, chips before M6"),
    TimingParameter("complete_one_us", 200, "us", "completion of a task (Core ML), chips with one engine"),
    TimingParameter("complete_short_us", 150, "us", "completion of a short task (Core ML), chips with two engines"),
    TimingParameter("complete_long_us", 300, "us", "completion of a long task there"),
    TimingParameter("complete_from_us", 300, "us", "task length where completion begins to lengthen"),
    TimingParameter("complete_to_us", 500, "us", "task length where it stops"),
    TimingParameter("complete_awake_us", 150, "us", "completion while other processes keep the CPU busy"),
    TimingParameter("two_engine_call_us", 10, "us", "a call that uses both engines"),
    TimingParameter("worker_us", 20, "us", "round trip through a worker process"),
    # arithmetic
    TimingParameter(
        "mac_rate", 0.95, "", "share of the peak that dense layers reach", 0.2, family_spread=0.05, chip_spread=0.03
    ),
    TimingParameter("mac_rate_tiled", 0.95, "", "factor when tiles are shared out over two engines", 0.2),
    TimingParameter("int8_rate", 0.95, "", "share of the doubled rate that int8 layers reach", 0.2),
    TimingParameter("winograd_gain", 1.5, "", "3x3 and 1x3 kernels from H17 on", 0.3),
    TimingParameter("sparse_base", 0.2, "", "time share that zero weights do not save", 0.5),
    TimingParameter("sparse_slope", 0.8, "", "time share per density", 0.5),
    TimingParameter("runtime_rate", 0.5, "", "share of the peak with two run-time operands"),
    TimingParameter("runtime_task_us", 0.5, "us", "each matrix of a run-time product", family_spread=0.3),
    TimingParameter("unit_switch_us", 3, "us", "change between NE and PE with small tensors, H13 and H14"),
    TimingParameter("engine_sync_us", 0.5, "us", "a layer that two engines share"),
    TimingParameter("halo_us", 2, "us", "halo rows between two engines, per layer"),
    # weights
    TimingParameter("weights_gbs", 60, "GB/s", "weight stream", family_spread=0.15, chip_spread=0.25),
    TimingParameter(
        "big_chip_stream", 1.8, "", "weight stream of Pro, Max and Ultra chips from H15 on over the base chip's", 0.3
    ),
    TimingParameter("weights_power_of_two_gbs", 40, "GB/s", "wide 1x1 layers of 4096, 8192 ... channels on H16"),
    TimingParameter("palette_stream", 1, "", "time of palette streams over their bytes' share", 0.3),
    TimingParameter("sparse_stream", 1, "", "time of sparse streams over their bytes' share", 0.3),
    # activations
    TimingParameter("activations_gbs", 60, "GB/s", "activation DMA, per engine", family_spread=0.2, chip_spread=0.12),
    TimingParameter("cache_mb", 10, "MB", "element-wise data that the system cache absorbs (M6)"),
    TimingParameter("cache_gbs", 60, "GB/s", "element-wise DMA inside that cache, per engine"),
    TimingParameter("planar_dram_gbs", 40, "GB/s", "element-wise DMA beyond it, per engine"),
    # planar engine and compound functions
    TimingParameter("unary_rate", 50, "1e9/s", "one-input element-wise, per engine"),
    TimingParameter("binary_rate", 50, "1e9/s", "two-input element-wise, per engine"),
    TimingParameter("binary_large_rate", 30, "1e9/s", "the same with operands beyond 1.3 MiB per engine"),
    TimingParameter("unary_task_us", 0.5, "us", "per one-input task"),
    TimingParameter("binary_task_us", 0.5, "us", "per two-input task"),
    TimingParameter("reduce_rate", 30, "1e9/s", "reductions", family_spread=0.3),
    TimingParameter("pool_rate", 20, "1e9/s", "pooling windows"),
    TimingParameter("move_rate", 20, "1e9/s", "transposes, slices, shuffles"),
    TimingParameter("short_norm_rate", 20, "1e9/s", "norms whose axis is below the reduce-by-transpose threshold"),
    TimingParameter("short_softmax_rate", 20, "1e9/s", "softmax below that threshold"),
    TimingParameter("softmax_rate", 10, "1e9/s", "softmax", family_spread=0.3),
    TimingParameter("layer_norm_rate", 3, "1e9/s", "layer norm", family_spread=0.5),
    TimingParameter("group_norm_rate", 10, "1e9/s", "group norm", family_spread=0.3),
    TimingParameter("rms_row_us", 1, "us", "rms norm, per row beyond its elements", family_spread=0.3),
    TimingParameter("sdpa_row_us", 0.1, "us", "native attention, per head and query row"),
    TimingParameter("topk_us", 2, "us", "native arg max of a short row"),
)

BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}
