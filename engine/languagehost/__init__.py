"""A Pulumi language host for Python: what the engine starts to run programs, plugins and policies.

It speaks the engine's `LanguageRuntime` gRPC protocol over the stubs of the Pulumi SDK
(https://github.com/pulumi/pulumi/blob/master/proto/pulumi/language.proto). It stands in where the
vendor's `pulumi-language-python` is not installed, and is never used where it is.
"""
