"""Gates inside other people's training programs, one package each."""
