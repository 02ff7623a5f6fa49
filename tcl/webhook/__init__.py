"""MLflow's registry webhooks, received."""
