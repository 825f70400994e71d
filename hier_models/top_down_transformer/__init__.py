"""Top-Down Transformer: BART with local attention over tokens and full attention over segments."""
