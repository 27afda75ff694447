"""The block trace: schema, files, foreign formats, transforms and statistics."""
