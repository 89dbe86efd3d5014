"""From a PyTorch spec to the recipe that says what a kernel must compute."""
