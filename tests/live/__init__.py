"""A whole engine on a CPU, with dummy weights: needs vLLM with compiled CPU kernels."""
