"""Programs that use packages as their pages do; one file each, `program()` says what is called with what."""
