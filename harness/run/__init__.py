"""The whole path on one machine: store, capture, replay, wear, layouts, calibration, report."""
