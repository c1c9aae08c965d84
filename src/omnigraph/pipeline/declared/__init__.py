"""Declared pipelines: a YAML file from sources to one commit, checked before it runs."""

from omnigraph.pipeline.declared.check import PipelineCheck, check
from omnigraph.pipeline.declared.expect import ExpectationFailed
from omnigraph.pipeline.declared.report import RunReport
from omnigraph.pipeline.declared.rules import PipelineError
from omnigraph.pipeline.declared.run import run
from omnigraph.pipeline.declared.spec import Pipeline, parse_pipeline, read_pipeline
from omnigraph.pipeline.declared.stages import PipelineFailed, RunProgress

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
