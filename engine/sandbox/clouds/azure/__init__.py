"""The model of Azure for the sandbox's azure-native provider."""

from engine.sandbox.clouds.azure.model import AzureModel

__all__ = ["AzureModel"]
