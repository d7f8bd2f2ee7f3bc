"""The recorded runs of demo_data: what each shows, and how it is made."""
