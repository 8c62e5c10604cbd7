"""What the components take: the same names, arguments and rules on every cloud."""
