"""Programs of the inference tier that are sent as text to machines and containers, each with
nothing but the standard library (and, in the image, the workloads), and the texts around them."""
