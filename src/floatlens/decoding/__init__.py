"""The decoding loops: denoising and autoregression. A loop asks for forward passes and says what it did with them; it never runs a model itself."""
