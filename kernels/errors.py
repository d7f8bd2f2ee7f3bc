"""What a user is told when the kernels can't do what was asked."""


class KernelError(ValueError):
    """One sentence with the value and the remedy."""
