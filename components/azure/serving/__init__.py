"""What runs on machines and in containers of the inference tier: programs that are sent there as
text, each with nothing but the standard library, and the texts around them."""
