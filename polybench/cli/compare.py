"""`polybench compare`: measure configurations and print their table."""

from __future__ import annotations

from polybench.cli.cluster import TargetOption, UploadOption, check_cluster, reject_upload, run_on_cluster
from polybench.cli.execute import check_output, execute, print_plan
from polybench.cli.options import OPTIONS, with_options
from polybench.cli.output import OutputOptions
from polybench.schema.options import Study


@with_options(*(name for name in OPTIONS if name != "published"))
def compare(
    study: Study,
    options: OutputOptions,
    quick: bool,
    strict: bool,
    recheck: bool,
    dry_run: bool,
    on: TargetOption = None,
    upload: UploadOption = False,
) -> None:
    """Example: polybench compare --engines torch,tf --data cifar10"""
    if quick:
        study = study.quick()
    reject_upload(on, upload=upload)
    if dry_run:
        check_output(options)
        if on is not None:
            check_cluster(study, (), on, upload=upload)
        print_plan(study, is_remote=on is not None)
    elif on is not None:
        run_on_cluster(study, (), on, options, upload=upload, strict=strict, recheck=recheck)
    else:
        execute(study, options, strict=strict, recheck=recheck)
