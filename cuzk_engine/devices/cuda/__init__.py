"""NVIDIA GPUs: compiling kernels, launching them, and the operations built from them. Nothing here is imported where
no GPU is used."""
