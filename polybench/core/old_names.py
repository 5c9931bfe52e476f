"""Names of before version 2, for error messages that name the new one.

REMOVE THIS MODULE AND ITS CALLERS AT THE FIRST RELEASE: no released version has any of these names.
"""

from __future__ import annotations

OPTIONS = {
    "--acknowledge": "--dismiss",
    "--against": "--baseline",
    "--describe": "polybench scripts",
    "--handicap": "--inject-delay",
    "--heap": "--malloc",
    "--inside": "--expand-blocks",
    "--patience": "--wait-idle",
    "--pin": "--pin-cpus",
    "--points": "--show-points",
    "--recheck": "--remeasure",
    "--remove": "--remove-package",
    "--rounds": "--rounds-per-process",
    "--schedule": "--lr-schedule",
    "--script": "--scripts",
    "--ship": "--upload",
    "--steps": "--steps-per-round",
    "--target": "--margin",
    "--until": "--target-accuracy",
    "--with": "--add-package",
    "--workers": "--loader-workers",
}
"""Option of the command line -> the option or command that replaces it, in commands that have the new one."""

COMMANDS = {"limit": "peak"}

NAMES = {
    # Fields of a study: keys of study files and options in Python.
    "handicaps": "injected_delays",
    "heap": "malloc",
    "patience": "wait_idle",
    "pin": "pin_cpus",
    "resource": "resources",
    "rounds": "rounds_per_process",
    "schedule": "lr_schedule",
    "ship": "upload",
    "steps": "steps_per_round",
    "target": "margin",
    "until": "target_accuracy",
    "when_quick": "quick_overrides",
    "workers": "loader_workers",
    # Values of options.
    "keep": "retain",
    "lost": "slowdown",
    # Networks and variants.
    "all_threads": "all_cores",
    "default_threads": "framework_threads",
    "nofuse": "no_fusion",
    "rosetta": "dlframeworks-cnn",
    "smallvgg": "small-vgg",
    "systemheap": "system_malloc",
    # Columns.
    "allocated": "alloc_bytes_per_step",
    "allocations": "allocs_per_step",
    "baseline_memory": "memory_after_import",
    "break_even": "break_even_steps",
    "communication": "allreduce_share",
    "cost": "cost_per_epoch",
    "cpu": "cpu_utilization",
    "data_time": "data_to_device_time",
    "device_allocated": "device_alloc_bytes_per_step",
    "device_allocations": "device_allocs_per_step",
    "device_memory": "device_peak_memory",
    "device_speedup": "gpu_speedup",
    "efficiency": "parallel_efficiency",
    "full_sweeps": "full_gcs",
    "gpu": "gpu_utilization",
    "mapped_memory": "file_mapped_memory",
    "native_allocated": "native_bytes_per_step",
    "native_allocations": "native_allocs_per_step",
    "native_large": "native_allocs_ge_256kib",
    "native_medium": "native_allocs_1kib_256kib",
    "native_peak": "native_peak_live",
    "native_ratio": "native_bytes_vs_baseline",
    "native_small": "native_allocs_lt_1kib",
    "own_memory": "private_memory",
    "process_start": "process_start_time",
    "roof": "pct_of_peak",
    "run_delay": "cpu_wait_time",
    "scaling": "parallel_speedup",
    "step_memory": "step_peak_increase",
    "throttle": "throttle_reasons",
    "waiting_time": "data_wait_time",
    # Groups of columns.
    "disturbance": "interference",
    "means": "mean_times",
    "replication": "replicas",
    "times": "speed",
}
"""Name -> the name that replaces it, in tables that have the new one and not the old one."""
