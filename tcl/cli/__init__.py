"""The command line: parse, validate, call a flow or a job, print."""
