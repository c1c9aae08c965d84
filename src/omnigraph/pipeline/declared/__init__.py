"""Declared pipelines: a YAML file from sources to one commit, checked before it runs."""

from omnigraph.pipeline.declared.check import PipelineCheck, check
from omnigraph.pipeline.declared.report import RunReport
from omnigraph.pipeline.declared.run import ExpectationFailed, PipelineFailed, RunProgress, run
from omnigraph.pipeline.declared.spec import Pipeline, PipelineError, parse_pipeline, read_pipeline

__all__ = [
    "ExpectationFailed",
    "Pipeline",
    "PipelineCheck",
    "PipelineError",
    "PipelineFailed",
    "RunProgress",
    "RunReport",
    "check",
    "parse_pipeline",
    "read_pipeline",
    "run",
]
