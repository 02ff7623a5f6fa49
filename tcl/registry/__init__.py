"""Cost models and compile runs in MLflow."""
