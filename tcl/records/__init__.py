"""Workloads and measure records: the Parquet store, its journal and MetaSchedule's JSON database."""
