"""What tests share: small networks, data, runs and comparisons, and slow formulas to compare with."""
