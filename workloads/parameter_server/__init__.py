"""A parameter server: workers of any speed, over any link, improve one model without waiting.

A server holds versioned weights and the optimiser. Workers fetch the weights, compute gradients
(or do steps of their own) on their rows and send what they found, over mutual TLS 1.3. PyTorch's
`torch.distributed.rpc` was weighed and not taken: it runs what peers send it, without TLS.
"""
