"""What is asked and answered, counted and compared with what the model was made from."""
