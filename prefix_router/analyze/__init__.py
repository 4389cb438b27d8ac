"""`prefix-router analyze`: what would prefix-aware routing do for this traffic?"""
