"""The steps of measure, distill, compile and up, used by the flows and in process alike."""
