"""An AWS that fits on one machine, for real engine runs. Never imported by the other rooms."""
