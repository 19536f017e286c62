"""Studies whose networks Ultralytics trains: gates × networks × seeds by its trainer, its settings
and its validator. Nothing of Ultralytics is imported before it is needed, and nothing goes over the
network."""
