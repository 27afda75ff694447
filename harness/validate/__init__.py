"""The ladder of trust: the model against FEMU, small against large, counters against commands,
and the simulator's assumption against what is measured."""
