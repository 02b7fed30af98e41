"""Domain adaptation: new words, training data, and comparison before and after."""
