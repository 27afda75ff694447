"""Run work under the probe and get a block trace with a verdict on what it missed."""
