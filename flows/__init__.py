"""Prefect flows over `tcl.jobs`: each task is one step of a job."""
