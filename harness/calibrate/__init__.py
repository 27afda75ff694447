"""The calibration file: its model, how runs become one, and a small reader for simulators."""
