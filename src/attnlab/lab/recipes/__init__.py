"""The papers' recipes, one TOML file each."""
