"""The kernels in Triton. Imported only where they run: `kernels` itself needs no Triton."""
