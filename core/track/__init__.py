"""Sends the metrics of a run to trackers: TensorBoard, W&B, MLflow, trackio and OpenTelemetry."""
