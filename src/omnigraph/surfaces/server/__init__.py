"""The HTTP server: who asks, what may run at once, and the routes; nothing below the surfaces knows of it."""
