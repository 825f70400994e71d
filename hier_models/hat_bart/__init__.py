"""HAT-BART: BART with a level of attention over sentences."""
