"""The figures of Case Study A: random Fourier features, and what they are compared with."""
