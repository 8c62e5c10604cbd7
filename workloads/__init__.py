"""Code that runs on the machines; it knows neither Pulumi nor the rest of Falaj."""
