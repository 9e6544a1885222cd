"""Protocol servers, one package each; they do not know each other."""
